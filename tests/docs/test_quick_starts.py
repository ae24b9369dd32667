"""The quick starts in docs/start: their files and commands work, and print what the page says."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import duckdb
import pytest

from tests.unit.client import chromium
from tidings.server import processes

ROOT = Path(__file__).parents[2]
START = ROOT / "docs/start"
BIN = Path(sys.executable).parent
WITHIN_S, INSTALL_S = 120.0, 900.0  # the latter if a step also installs packages
_OUTPUT_MAX = 1 << 20
PORTS = ("8042", "8052", "8000")
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
# These parts differ from run to run: ids and cursors, and times.
_VARIES = ((r"\b[0-9a-f]{24}\b", "0" * 24), (r"\b20\d\d-[\d-]+T[\d:.]+Z", "TIME"))
# tests/release and tests/world run these lines.
_INSTALLS = re.compile(
    r"^((pip|npm) install|make release|python3 -m venv|\. \.venv-start/) ?.*$", re.MULTILINE
)
_REACHES_INDEX = re.compile("PIP_|SSL_CERT_|NODE_EXTRA_CA|npm_config|.*_proxy$", re.IGNORECASE)
_SERVES = re.compile("tidings serve|http.server")
_RUNS_ON = re.compile("follow.py|follow.mjs|pipeline run")  # until Ctrl-C
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "FRONTEND.md": ("node", "browser"),
    "OPERATOR.md": ("curl",),
}


class Step(NamedTuple):
    """Commands with the output that the page shows for them; empty if it shows none."""

    commands: str
    output: str


class Folder(NamedTuple):
    """The folder in which the commands of a page run, and the ports that replace its ports."""

    path: Path
    ports: Mapping[str, str]
    installs: bool = False  # run what installs, without an environment; otherwise use ours

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of each shell, in which the default address has our port."""
        ours = {"HOME": str(self.path), "TIDINGS_URL": f"http://127.0.0.1:{self.ports['8042']}"}
        if not self.installs:
            return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **ours}
        kept = {name: os.environ[name] for name in os.environ if _REACHES_INDEX.match(name)}
        outside = os.environ["PATH"].replace(f"{BIN}:", "")
        home = {"HOME": str(self.path.parent), "PIP_QUIET": "1"}  # the clone stays unchanged
        return {**kept, "LANG": "C.UTF-8", "PATH": outside, **ours, **home}

    def commands(self, text: str) -> str:
        return self.local(text if self.installs else _INSTALLS.sub(":", text))

    def local(self, text: str) -> str:
        for port, ours in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|--port |http\.server ){port}\b", rf"\g<1>{ours}", text)
        return text


def steps(page: Path) -> Iterator[Step | tuple[str, str]]:
    """Yield the files of *page* by name, and its commands, in order."""
    blocks = [*_BLOCK.findall(page.read_text()), ("", "", "")]
    for (kind, title, text), (following, _, shown) in itertools.pairwise(blocks):
        if title:
            yield title, text
        elif kind == "sh":
            yield Step(text, shown if following == "text" else "")


def normalised(text: str) -> str:
    for pattern, same in _VARIES:
        text = re.sub(pattern, same, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Running:
    """The commands of a step in a shell of their own, which is stopped as by Ctrl-C."""

    def __init__(self, step: Step, folder: Folder) -> None:
        self.step, self._expected = step, normalised(folder.local(step.output))
        self.installs = folder.installs
        script = folder.commands(step.commands)
        if "tidings serve" in script and "--port" not in script:
            script = script.replace("tidings serve", f"tidings serve --port {folder.ports['8042']}")
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 lives as long as the commands
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 likewise
        self._process = subprocess.Popen(
            ["bash", "-euc", script],
            cwd=folder.path,
            env=folder.environment,
            stdout=self._log,
            stderr=self._errors,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait(WITHIN_S)
        self._log.close()
        self._errors.close()

    def check(self, *, ends: bool = False) -> None:
        """Wait until the commands have printed what the page shows, if it does, or have ended."""
        deadline = time.monotonic() + (INSTALL_S if self.installs else WITHIN_S)
        while self._process.poll() is None and time.monotonic() < deadline:
            if not ends and (not self._expected or self._printed() == self._expected):
                return
            time.sleep(0.05)
        assert self._process.poll() in (None, 0), self._failure()
        if self._expected:
            assert self._printed() == self._expected, self._failure()

    def _printed(self) -> str:
        return normalised(_text(self._log))

    def _failure(self) -> str:
        return f"{self.step.commands}\n{self._printed()}\n{_text(self._errors)}"


def _text(file: IO[str]) -> str:
    """Return the content of *file* without moving the position at which the commands write."""
    return os.pread(file.fileno(), _OUTPUT_MAX, 0).decode()


def _pages() -> Iterator[Any]:
    for page in sorted(START.glob("*.md")):
        marks = [getattr(pytest.mark, need) for need in _NEEDS.get(page.name, ())]
        yield pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", list(_pages()))
def test_a_quick_start_works(page: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path, {port: str(processes.free_port()) for port in PORTS})
    (tmp_path / "node_modules/@tidings").mkdir(parents=True)
    (tmp_path / "node_modules/@tidings/client").symlink_to(ROOT / "clients/javascript")
    play(page, folder)


def play(page: Path, folder: Folder) -> None:
    """Write the files of *page* and run its commands in *folder*, one shell for each step.

    Servers stay until the end of the page; other commands end, or are stopped by Ctrl-C.
    """
    with ExitStack() as servers:
        for step in steps(page):
            if not isinstance(step, Step):
                name, text = step
                (folder.path / name).write_text(folder.local(text))
            elif _SERVES.search(step.commands):
                servers.enter_context(Running(step, folder)).check()
            else:
                with Running(step, folder) as running:
                    running.check(ends=not _RUNS_ON.search(step.commands))
                    if "pipeline run" in step.commands:
                        _wait_for_files(folder.path / "objects")
        if page.name == "FRONTEND.md":
            _check_page(folder)


def _wait_for_files(objects: Path) -> None:
    """Wait until a pipeline, which prints nothing, has written its copy."""
    query = f"SELECT key FROM '{objects}/*.parquet' WHERE key = 'x32'"
    deadline = time.monotonic() + WITHIN_S
    while not any(objects.glob("*.parquet")) or not duckdb.execute(query).fetchall():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _check_page(folder: Folder) -> None:
    """The page lists the videos, and a change arrives."""
    with chromium.browser(folder.path / "profile") as socket, chromium.tab(socket) as tab:
        tab.open(f"http://127.0.0.1:{folder.ports['8000']}/")
        tab.until("document.querySelectorAll('li').length === 2")
        post = folder.local('tidings post update video x32 --data \'{"title":"Low tide"}\'')
        with Running(Step(post, "update video/x32  " + "0" * 24), folder) as running:
            running.check(ends=True)
        tab.until("document.querySelector('ul').textContent.includes('Low tide')")
