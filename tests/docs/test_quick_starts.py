"""The quick starts in docs/start: their files and commands work, and print what the page says.

    python -m tests.docs.test_quick_starts [PAGE...]

plays pages in a new clone of the last commit, installs their packages, and prints the time of each
step. tests/release/test_clone.py plays README.md in this way.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import click
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
_VARIES = ((r"\b[0-9a-f]{24}\b", "0" * 24), (r"\b20\d\d-[\d-]+T[\d:.]+(Z|\+00:00)", "TIME"))
# tests/release and tests/world run these lines.
_INSTALLS = re.compile(r"^((pip|npm) install|pip wheel|python3 -m venv) ?.*$", re.MULTILINE)
_REACHES = re.compile(r"PIP_|SSL_CERT_|NODE_EXTRA_CA|npm_config|PG|.*_proxy$", re.IGNORECASE)
_SERVES = re.compile("tidings serve|http.server|make run|uvicorn")
_PORT = re.compile(r"(?:--port|http\.server) (\d+)")
_RUNS_ON = re.compile(r"follow.py|follow.mjs|pipeline run|tail --from 0$", re.M)  # until Ctrl-C
_ACTIVATES = re.compile(r"^\. .*/activate$", re.MULTILINE)
# What such commands have printed when they work, if the page does not show their output.
_BEGUN = {"make run": "tidings serve ready", "tidings tail": "insert"}
_TIME_LIMIT = 28  # exit code of curl, after `--max-time`
ELSEWHERE = ("AWS.md", "FASTAPI.md")  # tests/release/test_clone.py, test_fastapi.py
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
    installs: bool = False  # run what installs; otherwise `.venv-start` is made of our environment

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of each shell: settings for an index or database, our port."""
        kept = {name: os.environ[name] for name in os.environ if _REACHES.match(name)}
        outside = os.pathsep.join(filter(self._is_outside, os.environ["PATH"].split(os.pathsep)))
        return {
            **kept,
            "HOME": str(Path.home() if self.installs else self.path.parent),  # with pip's settings
            "LANG": "C.UTF-8",
            "PATH": outside,
            "PIP_QUIET": "1",
            "TIDINGS_URL": f"http://127.0.0.1:{self.ports['8042']}",
        }

    def _is_outside(self, folder: str) -> bool:
        """Return False for a folder of the path in which a page that activates nothing succeeds."""
        return Path(folder) != BIN and (self.installs or not Path(folder, "tidings").exists())

    def link_environment(self) -> None:
        """Make `.venv-start`, which a page makes and activates, with our packages and commands."""
        venv.create(self.path / ".venv-start", symlinks=True)
        (packages,) = self.path.glob(".venv-start/lib/python*/site-packages")
        ours = sysconfig.get_path("purelib")
        (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})")
        for name in ("tidings", "uvicorn"):
            (self.path / ".venv-start/bin" / name).symlink_to(BIN / name)

    def commands(self, text: str) -> str:
        return self.local(text if self.installs else _INSTALLS.sub(":", text))

    def local(self, text: str) -> str:
        for port, ours in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|--port |http\.server ){port}\b", rf"\g<1>{ours}", text)
        return text


def free_ports() -> dict[str, str]:
    return {port: str(processes.free_port()) for port in PORTS}


def steps(page: str) -> Iterator[Step | tuple[str, str]]:
    """Yield the files in the text of a *page* by name, and its commands, in order."""
    blocks = [*_BLOCK.findall(page), ("", "", "")]
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

    def __init__(self, step: Step, folder: Folder, before: str = "") -> None:
        self.step, self._expected = step, normalised(folder.local(step.output))
        self.installs = folder.installs
        script = folder.commands(step.commands)
        if "tidings serve" in script and "--port" not in script:
            script = script.replace("tidings serve", f"tidings serve --port {folder.ports['8042']}")
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 lives as long as the commands
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 likewise
        self._process = subprocess.Popen(
            ["bash", "-euc", f"{before}\n{script}"],
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
            if not ends and self._has_begun():
                return
            time.sleep(0.05)
        codes = (None, 0, _TIME_LIMIT) if "--max-time" in self.step.commands else (None, 0)
        assert self._process.poll() in codes, self._failure()
        if self._expected:
            assert self._printed() == self._expected, self._failure()
        else:
            assert ends or self._has_begun(), self._failure()

    def _has_begun(self) -> bool:
        if self._expected:
            return self._printed() == self._expected
        begun = (text for part, text in _BEGUN.items() if part in self.step.commands)
        return next(begun, "") in self._printed()

    def _printed(self) -> str:
        return normalised(_text(self._log))

    def _failure(self) -> str:
        return f"{self.step.commands}\n{self._printed()}\n{_text(self._errors)}"


def _text(file: IO[str]) -> str:
    """Return the content of *file* without moving the position at which the commands write."""
    return os.pread(file.fileno(), _OUTPUT_MAX, 0).decode()


def _pages() -> Iterator[Any]:
    for page in sorted(START.glob("*.md")):
        if page.name in ELSEWHERE:
            continue
        marks = [getattr(pytest.mark, need) for need in _NEEDS.get(page.name, ())]
        yield pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", list(_pages()))
def test_a_quick_start_works(page: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "page", free_ports())
    (folder.path / "node_modules/@tidings").mkdir(parents=True)
    (folder.path / "node_modules/@tidings/client").symlink_to(ROOT / "clients/javascript")
    folder.link_environment()
    play(page.read_text(), folder)


def play(page: str, folder: Folder) -> None:
    """Write the files of *page* and run its commands in *folder*, one shell for each step.

    Servers stay until the end of the page; other commands end, or are stopped by Ctrl-C. A step
    has the environment that an earlier step activated, unless a server occupies that terminal.
    """
    activated = ""
    with ExitStack() as servers:
        for step in steps(page):
            if not isinstance(step, Step):
                name, text = step
                (folder.path / name).write_text(folder.local(text))
                continue
            began = time.monotonic()
            before = activated
            activated = "\n".join(_ACTIVATES.findall(step.commands)) or activated
            if _SERVES.search(step.commands):
                servers.enter_context(Running(step, folder, before)).check()
                _wait_for_ports(folder.local(step.commands))
                activated = ""
            else:
                with Running(step, folder, before) as running:
                    running.check(ends=not _RUNS_ON.search(step.commands))
            seconds = time.monotonic() - began
            click.echo(f"{seconds:6.1f} s  {'; '.join(step.commands.splitlines())}")
        if (folder.path / "index.html").exists():
            _check_page(folder, activated)


def _wait_for_ports(commands: str) -> None:
    """Wait until the ports that *commands* name accept connections."""
    deadline = time.monotonic() + WITHIN_S
    for port in _PORT.findall(commands):
        while True:
            with socket.socket() as client:
                if not client.connect_ex(("127.0.0.1", int(port))):
                    break
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _check_page(folder: Folder, activated: str) -> None:
    """The page lists the videos, and a change arrives."""
    with chromium.browser(folder.path / "profile") as socket, chromium.tab(socket) as tab:
        tab.open(f"http://127.0.0.1:{folder.ports['8000']}/")
        tab.until("document.querySelectorAll('li').length === 2")
        post = folder.local('tidings post update video x32 --data \'{"title":"Low tide"}\'')
        step = Step(post, "update video/x32  " + "0" * 24)
        with Running(step, folder, activated) as running:
            running.check(ends=True)
        tab.until("document.querySelector('ul').textContent.includes('Low tide')")


def main() -> None:
    """Play the pages that the command line names, or all of them, each in a clone of its own."""
    # A shell ignores Ctrl-C in the programs that it starts in the background, and so would theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for page in sys.argv[1:] or [each.name for each in sorted(START.glob("*.md"))]:
        click.echo(f"== {page}")
        with tempfile.TemporaryDirectory() as parent:
            clone = Path(parent) / "tidings"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            play((START / page).read_text(), Folder(clone, free_ports(), installs=True))


if __name__ == "__main__":
    main()
