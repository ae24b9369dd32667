"""`tidings verify` and `tidings rebuild` of a server that was stopped, and of a stage."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tests.unit.admin.cloudformation import deployed
from tidings.aws.config.stages import SETTING_OUTPUTS
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.state import DynamoDBState
from tidings.client.cli.main import main
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
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


def test_what_a_server_holds_agrees_with_its_log(data: Path) -> None:
    """This includes a restart, after which followers may handle pages again."""
    done = run("verify", data)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["agreeing"], set(told["differences"].values())) == (3, {0})


def test_a_row_that_is_missing_is_found_and_put_right(data: Path) -> None:
    with (
        contextlib.closing(Database(data / operating.FILE)) as database,
        database.transaction() as sql,
    ):
        sql.execute("DELETE FROM rows WHERE key = 'video/b'")
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


NOW = 1_763_000_000_000
HOURS = 3
WEEK_MS = 7 * 24 * 3_600_000
SETTINGS = {
    "TIDINGS_LOG_TABLE": "log",
    "TIDINGS_STATE_TABLE": "state",
    "TIDINGS_CONTROL_TABLE": "control",
    "TIDINGS_FEEDS": "main,orders",
    "TIDINGS_RETENTION_HOURS": str(HOURS),
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Create the tables of the stage `dev`."""
    outputs = {name: SETTINGS[variable] for name, variable in SETTING_OUTPUTS.items()}
    with deployed(monkeypatch, outputs) as client:
        yield client


def on_stage(command: str, feed: str = "orders", stage: str = "dev", *options: str) -> Result:
    return CliRunner().invoke(main, [command, "--feed", feed, "--stage", stage, *options])


def test_a_stage_whose_state_was_lost(client: Any) -> None:
    """The stage is found by its name; restored tombstones expire by the stage's retention."""
    log, followers = DynamoDBLog(client, "log", "control"), DynamoDBFollowers(client, "control")
    raw = {"event": "delete", "type": "video", "id": "a"}
    line = line_from(raw, now_ms=NOW)
    body = encode([line_from(raw | {"event": "insert", "id": "b"}, now_ms=NOW), line])
    far = 4_102_444_800_000 - WEEK_MS - HOURS * 3_600_000  # its tombstone has not expired
    log.put("orders", Page(log.take("orders", 2), body, "a", far))
    lease = followers.take("orders", "state", owner="x", now_ms=NOW)
    assert lease is not None
    followers.save(lease, 1, now_ms=NOW)

    lost = on_stage("verify")
    assert (lost.exit_code, "2 missing" in lost.stdout) == (3, True)
    assert "Repaired 2" in on_stage("rebuild").stdout
    assert on_stage("verify").exit_code == 0
    (row,) = DynamoDBState(client, "state").find("orders", ["video/a"])
    assert (row.line, row.expires_ms) == (line, 4_102_444_800_000)


def test_a_stage_or_feed_that_is_not_there(client: Any) -> None:
    """It is said in one sentence."""
    for found, sentence in [
        (on_stage("verify", stage="prod"), "tidings-prod"),
        (on_stage("rebuild", feed="films"), "no such feed here"),
    ]:
        assert (found.exit_code, sentence in found.stderr) == (1, True)
        assert found.stderr.count("\n") == 1
