"""The lineage events of a sync of a dump, which no receiver can delay."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from openlineage.client.naming.dataset import LocalFileSystem

from tests.unit.lineage.conftest import KEY
from tests.unit.lineage.receiver import Receiver
from tests.unit.sync.lines import line, written
from tidings.client.cli.main import main
from tidings.server.running import Server

PASSWORD = "hunter2hunter2"


def sync(dump: str, server: Server, *options: str) -> Result:
    same = ["--engine", "sail", "--max-delete-share", "1", "--json", "--lineage"]
    where = ["--url", server.url, "--password", PASSWORD]
    return CliRunner().invoke(main, ["sync", dump, *where, *same, *options])


def test_a_run_tells_its_dump_and_its_feed(tmp_path: Path, receiver: Receiver) -> None:
    """Both have their conventional names, with the counts of rows; no secret is in the events."""
    dump = written(tmp_path / "dump.json", [line("a", 1), line("b", 1)])
    with Server() as server:
        done = sync(dump, server)

    assert done.exit_code == 0, done.output
    begun, ended = receiver.events
    file, feed = LocalFileSystem(dump), {"namespace": server.url.rstrip("/"), "name": "main"}
    assert receiver.states == ["START", "COMPLETE"]
    assert begun["run"]["runId"] == ended["run"]["runId"]
    assert (ended["job"]["namespace"], ended["job"]["name"]) == ("data", "tidings.sync.main")
    assert ended["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert ended["producer"].startswith("urn:tidings:")
    for event in (begun, ended):
        named = [(each["namespace"], each["name"]) for each in event["inputs"]]
        assert named == [(file.get_namespace(), file.get_name()), tuple(feed.values())]
        assert feed.items() <= event["outputs"][0].items()
    rows = [each["inputFacets"]["inputStatistics"]["rowCount"] for each in ended["inputs"]]
    assert rows == [2, 0]
    assert ended["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert set(receiver.paths) == {"/api/v1/lineage"} and set(receiver.keys) == {f"Bearer {KEY}"}
    assert not [each for each in receiver.bodies if PASSWORD in each or KEY in each]


def test_one_that_only_looks_writes_nothing(tmp_path: Path, receiver: Receiver) -> None:
    """It reads, and has no output."""
    with Server() as server:
        assert sync(written(tmp_path / "dump", [line("a", 1)]), server, "--dry-run").exit_code == 0
    assert receiver.states == ["START", "COMPLETE"]
    assert [each["outputs"] for each in receiver.events] == [[], []]


def test_one_that_fails_tells_why(tmp_path: Path, receiver: Receiver) -> None:
    """The event has the message that the user sees."""
    dump = written(tmp_path / "dump", [b"{"])
    with Server() as server:
        assert sync(dump, server).exit_code == 1
    assert receiver.states == ["START", "FAIL"]
    error = receiver.events[-1]["run"]["facets"]["errorMessage"]
    assert error["message"].startswith("the dump has 1 bad line; nothing was done")
    assert error["programmingLanguage"] == "Python"


def test_a_guard_that_stops_it_fails_it(tmp_path: Path, receiver: Receiver) -> None:
    """The event has the counts of the rows that were read until then."""
    with Server() as server:
        sync(written(tmp_path / "dump", [line("a", 1)]), server)
        other = written(tmp_path / "other", [line("b", 1)])
        assert sync(other, server, "--expect", "2").exit_code == 3
    begun, ended = receiver.events[-2:]
    assert (begun["eventType"], ended["eventType"]) == ("START", "FAIL")
    assert "2" in ended["run"]["facets"]["errorMessage"]["message"]


def test_a_receiver_that_is_away_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, without what the client says of each attempt."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    with caplog.at_level(logging.WARNING), Server() as server:
        done = sync(written(tmp_path / "dump", [line("a", 1)]), server)
    assert done.exit_code == 0 and json.loads(done.stdout)["applied"] == 1
    assert len([each for each in caplog.records if each.name == "tidings.lineage"]) == 1
    assert not [each for each in caplog.records if each.name.startswith("urllib3")]


def test_without_the_option_nothing_is_imported(tmp_path: Path, receiver: Receiver) -> None:
    """Nothing is sent either, whatever the variables are."""
    dump = written(tmp_path / "dump", [line("a", 1)])
    script = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from tidings.client.cli.main import main\n"
        "done = CliRunner().invoke(main, ['sync', *sys.argv[1:]])\n"
        "assert done.exit_code == 0, done.output\n"
        "print([each for each in sys.modules if each.startswith('openlineage')])\n"
    )
    with Server() as server:
        program = [sys.executable, "-c", script, dump, "--url", server.url, "--dry-run"]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), receiver.bodies) == ("[]", []), done.stderr
