"""`tidings verify` and `tidings rebuild` of a server that was stopped, and of a copy of one."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from tidings.client.cli.main import main
from tidings.server import operating
from tidings.server.running import Server
from tidings.server.sqlite.database import Database

DIFFERENT = 3


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data of a server that has three objects, and was stopped."""
    with Server(data=tmp_path / "data") as server:
        for id_ in ("a", "b", "c"):
            operation = {"event": "update", "type": "video", "id": id_}
            httpx.post(server.url, json=operation).raise_for_status()
    return tmp_path / "data"


def run(command: str, data: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [command, "--data", str(data), "--json", *options])


def break_a_row(data: Path) -> None:
    """As no part of a server does."""
    with (
        contextlib.closing(Database(data / operating.FILE)) as database,
        database.transaction() as sql,
    ):
        sql.execute("DELETE FROM rows WHERE key = 'video/b'")


def test_what_a_server_holds_agrees_with_its_log(data: Path) -> None:
    """Also after a restart, whose followers may handle pages again."""
    done = run("verify", data)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["agreeing"], set(told["differences"].values())) == (3, {0})


def test_a_row_that_is_missing_is_found_and_put_right(data: Path) -> None:
    """As on a stage."""
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


def test_tables_are_those_of_a_stage(data: Path) -> None:
    """A server has its own."""
    assert run("verify", data, "--tables", "x").exit_code == 2
