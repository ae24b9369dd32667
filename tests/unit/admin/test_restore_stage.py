"""`tidings restore` of a stage: restored tables are found by the suffix of their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.admin.cloudformation import deployed
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.cli.main import main
from tidings.core.archive import segments
from tidings.core.archive.writer import Archiver
from tidings.core.effects import discard_count
from tidings.core.errors import Unavailable
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.settings.profiles import ProfileStore
from tidings.http.outbound.folder_archive import FolderArchive

AT = 1_763_000_000_000
OUTPUTS = {
    "LogTable": "log",
    "StateTable": "state",
    "ControlTable": "control",
    "Feeds": "main,copy",
    "RetentionHours": "3",
    "Sources": json.dumps({"copy": {"url": "https://feed.example.org/feeds/main"}}),
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Create the tables of the stage `dev`, and restored copies of them."""
    with deployed(monkeypatch, OUTPUTS, "2") as client:
        yield client


def _run(*options: str, feed: str = "main") -> Result:
    return CliRunner().invoke(main, ["restore", "--stage", "dev", "--feed", feed, *options])


def _page(number: int) -> Page:
    raw = {"event": "insert", "type": "video", "id": f"x{number}"}
    return Page(number, encode([line_from(raw, now_ms=AT)]), f"{number}", AT)


def _restored(client: Any) -> DynamoDBLog:
    log = DynamoDBLog(client, "tidings-dev-log-2", "tidings-dev-control-2")
    for _ in range(2):
        log.put("main", _page(log.take("main", 1)))
    return log


def test_tables_beside_those_in_use_are_taken_up(client: Any, tmp_path: Path) -> None:
    """A dry run shows the plan; neither the tables in use nor a dry run write anything."""
    log, kept = _restored(client), FolderArchive(tmp_path)
    kept.put("main", *segments.encode([_page(number) for number in (1, 2, 3, 4)]))
    options = ["--tables", "2", "--heard", "7", "--archive", str(tmp_path)]
    dry = _run(*options, "--dry-run")
    assert "The log is kept up to page 2; it continues after page 8.\n" in dry.stdout
    assert log.head("main") == 2
    done = json.loads(_run(*options, "--json").stdout)
    assert done == {
        "feed": "main",
        "kept": 2,
        "lost": [3, 7],
        "followers": [],
        "consumers": [],
        "parts": 1,
    }
    assert [page.number for page in log.read("main", 0)] == [1, 2, 8]
    assert log.take("main") == 9
    assert [(span.first, span.last) for span in kept.list("main", 0, 9)] == [(1, 2), (3, 8)]
    assert ProfileStore(DynamoDBRecords(client, "tidings-dev-control-2")).profile("main").lost == (
        (3, 7),
    )
    assert DynamoDBLog(client, "log", "control").head("main") == 0


def test_restored_tables_get_the_settings_that_dynamodb_does_not_restore(client: Any) -> None:
    """A table that was not restored is left to the deployment."""
    _restored(client)
    client.delete_table(TableName="tidings-dev-outbox-2")
    for _ in range(2):
        assert _run("--tables", "2").exit_code == 0
    for table in ("log", "state", "control"):
        name = f"tidings-dev-{table}-2"
        found = client.describe_table(TableName=name)["Table"]
        assert found["DeletionProtectionEnabled"]
        assert found.get("StreamSpecification", {}).get("StreamEnabled", False) is (table == "log")
        tags = client.list_tags_of_resource(ResourceArn=found["TableArn"])["Tags"]
        assert {each["Key"]: each["Value"] for each in tags} == {"tidings:stage": "dev"}
        expiry = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
        backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
        recovery = backups["PointInTimeRecoveryDescription"]
        assert recovery["PointInTimeRecoveryStatus"] == "ENABLED"
    assert not client.describe_table(TableName="log")["Table"]["DeletionProtectionEnabled"]


@pytest.mark.parametrize(
    ("options", "feed", "code", "said"),
    [
        (["--tables", "2"], "copy", 1, "copy is a copy: restore nothing"),
        (["--tables", "2"], "other", 1, "feed"),
    ],
)
def test_what_is_not_restored(
    client: Any, options: list[str], feed: str, code: int, said: str
) -> None:
    """The command refuses a copy and a feed that is missing."""
    _restored(client)
    done = _run(*options, feed=feed)
    assert (done.exit_code, said in done.stderr) == (code, True)


def _archive(client: Any, control: str, archiver: Archiver, log: DynamoDBLog) -> None:
    """Run the follower `archive` of these tables."""
    followers = DynamoDBFollowers(client, control)
    lease = followers.take("main", "archive", owner="a", now_ms=AT)
    pages = log.read("main", archiver.begin(lease))
    archiver.handle("main", pages)
    done = replace(lease, checkpoint=pages[-1].number, note=archiver.note("main"))
    followers.release(done, force=True)


def test_the_stage_runs_during_its_restore(client: Any, tmp_path: Path) -> None:
    """Its producers are refused before a number is assigned twice, also if they are between two
    steps.

    Its follower of the archive, which has read pages, writes them after the restore.
    """
    new, old = _restored(client), DynamoDBLog(client, "log", "control")
    kept, here = FolderArchive(tmp_path), ("--archive", str(tmp_path))
    for _ in range(4):
        old.put("main", _page(old.take("main")))
    stalled = Archiver(kept, discard_count)
    _archive(client, "control", stalled, old)
    late = old.take("main")
    stalled.begin(
        DynamoDBFollowers(client, "control").take("main", "archive", owner="s", now_ms=AT)
    )

    assert json.loads(_run("--tables", "2", *here, "--json").stdout)["lost"] == [3, 5]
    with pytest.raises(Unavailable):
        old.take("main")
    old.put("main", _page(late))
    stalled.handle("main", old.read("main", 4))
    number = new.take("main")
    assert new.put("main", replace(_page(number), at_ms=AT + 1)) == f"{number}"
    _archive(client, "tidings-dev-control-2", Archiver(kept, discard_count), new)

    run = CliRunner().invoke
    shown = run(main, ["archive", "show", "1..", *here, "--json"]).stdout.splitlines()
    assert [json.loads(line)["data"]["id"] for line in shown] == ["x1", "x2", "x7"]
    verify = ["verify", "--stage", "dev", "--tables", "2", *here]
    found = run(main, verify)
    assert (found.exit_code, "the pages 5 to 5, which are lost" in found.stderr) == (3, True)
    assert _run("--tables", "2", *here).exit_code == 0  # as if it had been killed
    assert run(main, verify).exit_code == 0

    span = kept.list("main", 2, 9)[-1]
    other = segments.encode([replace(_page(span.last), skipped=span.last - span.first)])[1]
    (tmp_path / "archive" / "main" / span.name).write_bytes(other)  # a program of another host
    assert run(main, verify).exit_code == 3
    assert _run(*here).exit_code == 0  # the operator goes back to the tables before the restore
    assert old.take("main") > 5
