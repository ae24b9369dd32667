"""`tidings verify` and `tidings rebuild` of a stage with a stack and tables of moto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.admin.cloudformation import deployed
from tidings.aws.config.stages import SETTING_OUTPUTS
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.state import DynamoDBState
from tidings.client.cli.main import main
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode

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


def run(command: str, feed: str = "orders", stage: str = "dev", *options: str) -> Result:
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

    lost = run("verify")
    assert (lost.exit_code, "2 missing" in lost.stdout) == (3, True)
    assert "Repaired 2" in run("rebuild").stdout
    assert run("verify").exit_code == 0
    (row,) = DynamoDBState(client, "state").find("orders", ["video/a"])
    assert (row.line, row.expires_ms) == (line, 4_102_444_800_000)


def test_a_stage_or_feed_that_is_not_there(client: Any) -> None:
    """It is said in one sentence."""
    for found, sentence in [
        (run("verify", stage="prod"), "tidings-prod"),
        (run("rebuild", feed="films"), "no such feed here"),
    ]:
        assert (found.exit_code, sentence in found.stderr) == (1, True)
        assert found.stderr.count("\n") == 1
