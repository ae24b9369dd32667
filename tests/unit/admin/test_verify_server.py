"""`tidings verify` and `tidings rebuild` of a server that was stopped, and of a copy of one."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tidings.client.cli.main import main
from tidings.server import operating
from tidings.server.running import Server
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

DIFFERENT = 3


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data of a stopped server with three objects."""
    with Server(data=tmp_path / "data") as server:
        for id_ in ("a", "b", "c"):
            operation = {"event": "update", "type": "video", "id": id_}
            httpx.post(server.url, json=operation).raise_for_status()
        until(lambda: _state_of(server) == 3)  # it pauses between batches
    return tmp_path / "data"


def _state_of(server: Server) -> int:
    """Return the last page that the state of the feed main has handled."""
    status = httpx.get(f"{server.url}status").json()
    (state,) = (each for each in status["followers"] if each["name"] == "state")
    return int(state["checkpoint"])


def run(command: str, data: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [command, "--data", str(data), "--json", *options])


def break_a_row(data: Path) -> None:
    """Delete a row directly in the file."""
    with (
        contextlib.closing(Database(data / operating.FILE)) as database,
        database.transaction() as sql,
    ):
        sql.execute("DELETE FROM rows WHERE key = 'video/b'")


def test_what_a_server_holds_agrees_with_its_log(data: Path) -> None:
    """This includes a restart, after which followers may handle pages again."""
    done = run("verify", data)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["agreeing"], set(told["differences"].values())) == (3, {0})


def test_a_row_that_is_missing_is_found_and_put_right(data: Path) -> None:
    break_a_row(data)
    found = run("verify", data)
    assert found.exit_code == DIFFERENT
    assert "video/b" in found.stdout
    assert json.loads(run("rebuild", data).stdout)["repaired"] == 1
    assert run("verify", data).exit_code == 0


def test_a_server_that_runs_is_copied_first(data: Path) -> None:
    """The sentence says how."""
    copy = data.parent / "copy"
    copy.mkdir()
    with Server(data=data):
        refused = run("verify", data)
        assert refused.exit_code == 1
        assert "tidings backup" in refused.stderr
        operating.back_up(data, copy / operating.FILE)
    assert run("verify", copy).exit_code == 0


def test_numbers_that_were_not_written_are_named_and_filled(data: Path) -> None:
    """A killed process of an earlier release left them, below other pages and at the end."""
    with contextlib.closing(Database(data / operating.FILE)) as database:
        log = SqliteLog(database)
        for number in range(4, 8):
            assert log.take("main", 1) == number
        (last,) = log.read("main", 2, 1)
        log.put("main", replace(last, number=6, append_id="x"))
    found = run("verify", data)
    assert found.exit_code == DIFFERENT
    assert "main: a killed process reserved pages 4 to 5 (head 7)" in found.stderr
    assert "main: a killed process reserved page 7 (head 7)" in found.stderr
    assert run("rebuild", data, "--dry-run").exit_code == 0
    assert run("verify", data).exit_code == DIFFERENT
    done = run("rebuild", data)
    assert (done.exit_code, done.stderr.count("; filled")) == (0, 2)
    assert run("verify", data).exit_code == 0


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_a_page_that_is_lost_is_named_and_never_filled(data: Path, command: str) -> None:
    """The state has handled it."""
    with (
        contextlib.closing(Database(data / operating.FILE)) as database,
        database.transaction() as sql,
    ):
        sql.execute("DELETE FROM pages WHERE page = 2")
    refused = run(command, data)
    assert refused.exit_code == 1
    assert "main: page 2 is missing (head 3)" in refused.stderr
    with contextlib.closing(Database(data / operating.FILE)) as database:
        assert [page.number for page in SqliteLog(database).read("main", 0)] == [1, 3]
