"""The README and the pages of docs/start as a first user runs them: every block, in a new clone.

Each step has a shell of its own with no environment but that of the page, so that a page fails if
it forgets to install something, or to activate the environment in a further terminal.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra import ROOT
from tests.docs.test_quick_starts import PORTS, START, WITHIN_S, Folder, play
from tidings.server import processes

# Installations from a package index; that of DATA.md downloads 650 MB.
pytestmark = pytest.mark.timeout(1800)
_TRY = re.compile(r"^## Try it\n(.*?)^## ", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INSTALLED_S = 600.0
_STOPPED = (0, 28, 124)  # also by `--max-time` of curl, and by `timeout`


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A clone of the last commit, with other ports than those that the pages name."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "tidings")], check=True)
    ports = {port: str(processes.free_port()) for port in PORTS}
    return Folder(tmp_path / "tidings", ports, installs=True)


def _pages() -> Iterator[Any]:
    marks = {"FRONTEND.md": [pytest.mark.node, pytest.mark.browser]}
    for page in sorted(START.glob("*.md")):
        yield pytest.param(page, id=page.stem, marks=marks.get(page.name, []))


@pytest.mark.parametrize("page", list(_pages()))
def test_a_page_of_the_start(page: Path, folder: Folder) -> None:
    play(page, folder)


def test_the_readme(folder: Folder) -> None:
    """`make run` in one terminal, and the other blocks in order, each in a terminal of its own."""
    text = _TRY.search((folder.path / "README.md").read_text())
    assert text
    serve, *others = _BLOCK.findall(text[1])
    assert serve == "make run\n"
    port = folder.ports["8042"]
    makefile = folder.path / "Makefile"
    makefile.write_text(makefile.read_text().replace("serve --demo", f"serve --demo --port {port}"))
    shell: dict[str, Any] = {"cwd": folder.path, "env": folder.environment}
    with subprocess.Popen(["bash", "-euc", serve], **shell, start_new_session=True) as server:
        try:
            _await(f"http://127.0.0.1:{port}/health", server)
            for block in others:
                script = folder.local(block).replace("tidings tail", "timeout 15 tidings tail")
                done = subprocess.run(
                    ["bash", "-euc", script], **shell, capture_output=True, text=True
                )
                assert done.returncode in _STOPPED, (block, done.stderr)
                assert done.stdout, (block, done.stderr)
        finally:
            os.killpg(server.pid, signal.SIGINT)


def _await(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server, which is installed first, answers at *address*."""
    deadline = time.monotonic() + _INSTALLED_S + WITHIN_S
    while True:
        try:
            if httpx.get(address).is_success:
                return
        except httpx.HTTPError:
            assert server.poll() is None and time.monotonic() < deadline
        time.sleep(0.5)
