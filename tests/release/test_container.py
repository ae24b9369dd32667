"""`examples/Containerfile`: its commands, run in a folder in place of a container.

No container engine is used, so two things are not shown: the base image and the user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import ROOT
from tests.compat.oplog.wire import until
from tidings.server import processes

FILE = ROOT / "examples" / "Containerfile"
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", "vendor", "node_modules")


def instructions() -> list[tuple[str, str]]:
    """Return each instruction and its text, without comments; continued lines are joined."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    parts = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(name, re.sub(r"\s+", " ", rest)) for name, rest in parts]


def _last(name: str) -> str:
    return [text for each, text in instructions() if each == name][-1]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder in place of the root of a container."""

    root: Path

    def at(self, text: str) -> str:
        """Return *text* with the paths of the container below the folder."""
        return re.sub(r"(?<![\w/.])/(src|opt|data)\b", rf"{self.root}/\1", text)

    def build(self) -> None:
        """Run the instructions of the first stage."""
        stage = [name for name, _ in instructions()].index("FROM") + 1
        place = self.root
        for name, text in instructions()[stage:]:
            if name == "WORKDIR":
                place = Path(self.at(text))
                place.mkdir(parents=True)
            elif name == "COPY":
                *sources, target = text.split()
                for source in sources:
                    _copy(ROOT / source, place / target)
            elif name == "RUN":
                # Compiling the packages would take two thirds of the time.
                environment = {**os.environ, "PIP_NO_COMPILE": "1"}
                command = ["sh", "-ec", self.at(text)]
                subprocess.run(command, cwd=place, env=environment, check=True)
            else:
                assert name == "FROM"
                return

    def run(self, command: str, port: int) -> list[str]:
        """Return a command in the form of JSON, with the paths and the port of this test."""
        arguments = [self.at(each) for each in json.loads(command.removeprefix("CMD "))]
        return [each.replace("8042", str(port)) for each in arguments]

    def environment(self) -> dict[str, str]:
        name, _, value = self.at(_last("ENV")).partition("=")
        path = os.environ["PATH"]
        return {**os.environ, name: value.replace("$PATH", path), "PYTHONPATH": ""}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=_NOT_COPIED)
    else:
        shutil.copyfile(source, target / source.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    built = Folder(tmp_path_factory.mktemp("container"))
    built.build()
    return built


@pytest.fixture
def served(folder: Folder) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command of the container; yield the process and its port."""
    port = processes.free_port()
    command = [*folder.run(_last("CMD"), port), "--port", str(port)]
    environment = folder.environment()
    with subprocess.Popen(
        command, env=environment, cwd=folder.root, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, port
        finally:
            process.kill()


def test_it_serves_and_reports_its_health(
    folder: Folder, served: tuple[subprocess.Popen[str], int]
) -> None:
    """The health check fails before the start and after the end; SIGTERM ends it with 0."""
    process, port = served
    check = folder.run(_last("HEALTHCHECK").partition("CMD ")[2], port)

    def is_healthy() -> bool:
        quiet = subprocess.DEVNULL
        done = subprocess.run(check, env=folder.environment(), stderr=quiet, check=False)
        return done.returncode == 0

    until(is_healthy)
    assert (folder.root / "data" / "feed.db").stat().st_mode & 0o777 == 0o600
    process.terminate()
    assert process.wait(60) == 0
    assert not is_healthy()


def test_it_has_the_page_and_no_source(folder: Folder) -> None:
    """Everything that runs is below /opt/tidings, which the second stage copies."""
    packed = "tidings/server/packed"
    (packages,) = (folder.root / "opt/tidings/lib").glob("python3.*/site-packages")

    assert (packages / packed / "console/index.html").is_file()
    assert (packages / packed / "clients/javascript/src/index.js").is_file()
    assert not [each for each in ("tests", "infra", "pip") if (packages / each).exists()]
    assert "/opt/tidings /opt/tidings" in _last("COPY")


def test_it_installs_the_lock_and_runs_without_root() -> None:
    """Packages come from the lock with their hashes, Tidings from the checkout without an index."""
    installs = [text for name, text in instructions() if name == "RUN" and "pip install" in text]

    assert len(installs) == 2
    assert "--require-hashes" in installs[0] and "requirements-run.lock" in installs[0]
    assert "--only-binary :all:" in installs[0]
    assert "--no-deps" in installs[1] and "--no-index" in installs[1]
    assert _last("USER").isdigit() and int(_last("USER")) > 0
    assert re.search(r"python:\d+\.\d+\.\d+-slim-\w+$", _last("ARG"))
