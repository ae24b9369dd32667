"""Every example runs; the Go one lacks its module here, and is at least well-formed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.compat.oplog.wire import until
from tidings.client import Poster
from tidings.server.running import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 180.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(data=tmp_path_factory.mktemp("server")) as running:
        yield running


def _run(name: str, *arguments: str) -> str:
    command = [*_interpreter(name), str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _running(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*_interpreter(name), str(EXAMPLES / name), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that a script has started


def _interpreter(name: str) -> Sequence[str]:
    return [sys.executable] if name.endswith(".py") else ["sh"]


def _post(server: Server, event: str, *names: str) -> None:
    with Poster(server.url) as poster:
        poster.post([{"event": event, "type": "film", "id": name} for name in names])


def test_a_copy_in_sqlite(server: Server, tmp_path: Path) -> None:
    """It holds what the feed holds, killed in between or not, and does not copy twice."""
    file, seen = tmp_path / "copy.sqlite", tmp_path / "copy.sqlite.seen"

    def films() -> set[str]:
        with closing(sqlite3.connect(file)) as database:
            return {name for (name,) in database.execute("SELECT id FROM objects")}

    _post(server, "insert", "a", "b", "c")
    with _running("python/keep_copy.py", server.url, str(file)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("live: ")
        until(seen.exists)
        begun = seen.read_text()
        _post(server, "delete", "b")
        until(lambda: "b" not in films())
        # Its position is saved once a second; killed before that, it would begin again.
        until(lambda: seen.read_text() != begun)
    _post(server, "insert", "d")
    _post(server, "delete", "a")
    with _running("python/keep_copy.py", server.url, str(file)):
        until(lambda: {"c", "d"} <= films() and not {"a", "b"} & films())
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM copies").fetchone() == (1,)


def test_counting_in_an_event_loop(server: Server) -> None:
    """It ends after as many operations as it was asked for."""
    _post(server, "insert", "e", "f")

    lines = _run("python/count_types.py", server.url, "2").splitlines()

    assert sum(int(line.split()[1]) for line in lines) == 2


def test_producing_once(server: Server) -> None:
    """The same key gives the same ids; another one others."""
    first, again, other = (_run("python/produce.py", server.url, key) for key in ("1", "1", "2"))

    assert len(first.split()) == 2
    assert first == again != other


@pytest.mark.curl
def test_curl_follows_and_posts(server: Server, tmp_path: Path) -> None:
    """A copy first; the next run continues after the last event of this one."""
    state = tmp_path / "seen"
    posted = _run("curl/post.sh", server.url, "insert", "film", "g")
    with _running("curl/follow.sh", server.url, str(state)) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines) == "reset\t{}\n"
        assert any(line.startswith("insert\t") and '"id":"g"' in line for line in lines)
        assert any(line.startswith("live\t") for line in lines)
        told = json.loads(_run("curl/post.sh", server.url, "update", "film", "g"))["ids"][0]
        assert next(line for line in lines if line.startswith("update\t"))
        until(lambda: state.read_text() == told)
    last = json.loads(_run("curl/post.sh", server.url, "update", "film", "h"))["ids"][0]
    with _running("curl/follow.sh", server.url, str(state)) as process:
        assert process.stdout is not None
        assert '"id":"h"' in process.stdout.readline()
        until(lambda: state.read_text() == last)

    assert json.loads(posted)["ids"][0] < last


def test_the_go_example_is_well_formed() -> None:
    """gofmt changes nothing in it, if Go is installed."""
    if shutil.which("gofmt") is None:
        pytest.skip("needs gofmt")
    done = subprocess.run(["gofmt", "-l", str(EXAMPLES / "go")], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")
