"""follow-archive, and the readers of its parts: with the archive on S3, as deployed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from functions.connect.handler import handle as connect
from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from functions.report.handler import handle as report
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import CONNECTION, Cloud, archive_on_s3, become, event, message, restart
from tidings.aws import clients
from tidings.aws.config.deployment import FUNCTIONS
from tidings.aws.stage import stage
from tidings.core.model.cursors import START
from tidings.http.settings import WrongSetting

READ = {"s3:GetObject", "s3:ListBucket"}


@pytest.fixture(autouse=True)
def archive(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    archive_on_s3(monkeypatch)


def wake(follower: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    become(follower, monkeypatch)
    return follow({"ring": "main"}, None)


def given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Post two pages and trim them, so that they are in the archive alone."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    for follower in ("state", "push", "archive"):
        wake(follower, monkeypatch)
    table = stage().settings.log_table
    for page in ("1", "2"):
        key: Any = {"feed": {"S": "main"}, "page": {"N": page}}
        clients.dynamodb().delete_item(TableName=table, Key=key)
    stage().stores.log.raise_floor("main", 3)


def record_s3_requests() -> set[str]:
    """Record the requests of this process to S3 from now on, as the actions that allow them."""
    asked: set[str] = set()
    names = {"ListObjectsV2": "ListBucket"}

    def note(model: Any, **_: object) -> None:
        asked.add(f"s3:{names.get(model.name, model.name)}")

    clients.objects().meta.events.register("before-call.s3", note)
    return asked


def granted(name: str) -> set[str]:
    """Return the actions that the blueprint's word allows."""
    (found,) = (each.archive for each in FUNCTIONS if each.name == name)
    return {"": set(), "read": READ, "write": {"s3:PutObject"}}[found]


def keys() -> list[str]:
    found = clients.objects().list_objects_v2(Bucket="kept")
    return [each["Key"] for each in found.get("Contents", ())]


def test_a_wake_puts_the_log_into_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the prefix of the archive and the feed; the checkpoint follows."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)

    assert wake("archive", monkeypatch) == {"batchItemFailures": []}
    assert keys() == ["dev/archive/main/0000000000002-0000000000001.ndjson.gz"]
    assert stage().stores.followers.checkpoints("main") == {"archive": 2}


def test_the_schedule_wakes_it_while_there_is_an_archive(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the feed moved a while ago; and the status reports its progress."""
    monkeypatch.setenv("TIDINGS_ARCHIVE_SECONDS", "0")
    restart()
    ingest(event("http_post"), None)
    sweep(event("schedule"), None)
    told = json.loads(report(event("http_get_status"), None)["body"])
    assert ("tidings-dev-follow-archive", {"ring": "main"}) in cloud.invoked
    assert [each["name"] for each in told["followers"]] == ["archive", "push", "state"]

    cloud.around.asked.clear()
    monkeypatch.setenv("TIDINGS_ARCHIVE", "")
    restart()
    sweep(event("schedule"), None)
    assert ("tidings-dev-follow-archive", {"ring": "main"}) not in cloud.invoked


def test_a_socket_is_replayed_from_the_archive(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operation, though the log has lost them all; with the granted rights only."""
    given_up(monkeypatch)
    restart()
    asked = record_s3_requests()
    connect(event("socket_connect"), None)
    receive(message({"action": "resume", "cursor": START.encode()}), None)
    replay({"replay": CONNECTION}, None)

    told = [each for _, sent in cloud.posted for each in sent.get("events", ())]
    assert [(each["event"], each["data"]["id"]) for each in told] == [
        ("insert", "x32"),
        ("insert", "1"),
        ("delete", "2"),
    ]
    assert asked and asked <= granted("replay") == granted("receive")


def test_a_stream_is_served_from_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same steps, and the same rights."""
    given_up(monkeypatch)
    restart()
    asked = record_s3_requests()
    stream = stage().streamer.open("main", START.encode())

    text = stream.next().text
    while not (chunk := stream.next()).at_frontier:
        text += chunk.text
    assert text.count("id: ") == 3 and "reset" not in text
    assert asked and asked <= granted("stream")


def test_the_follower_may_write_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never reads what it wrote."""
    ingest(event("http_post"), None)
    become("archive", monkeypatch)
    asked = record_s3_requests()
    follow({"ring": "main"}, None)

    assert asked == granted("follow-archive") == {"s3:PutObject"}


def test_a_bucket_that_is_not_there_stops_the_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong deployment is visible in its function's errors, and no page is skipped."""
    ingest(event("http_post"), None)
    monkeypatch.setenv("TIDINGS_ARCHIVE", "s3://none")

    with pytest.raises(ClientError, match="NoSuchBucket"):
        wake("archive", monkeypatch)
    assert stage().stores.followers.checkpoints("main") == {"archive": 0}


def test_nothing_of_s3_is_loaded_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most streams never need the archive: they start as soon as without one."""
    ingest(event("http_post"), None)
    restart()
    stage().streamer.open("main", "now").next()

    assert clients.objects.cache_info().currsize == 0


@pytest.mark.parametrize("url", ["archive", "s3:/kept", "https://kept"])
def test_a_wrong_address_is_told_by_its_setting(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is followed or read."""
    monkeypatch.setenv("TIDINGS_ARCHIVE", url)
    restart()

    with pytest.raises(WrongSetting, match=r"TIDINGS_ARCHIVE.*must be s3://BUCKET/PREFIX"):
        stage()


def test_without_an_archive_there_is_nothing_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invocation fails with the reason; readers have no archive."""
    monkeypatch.setenv("TIDINGS_ARCHIVE", "")
    with pytest.raises(WrongSetting, match="TIDINGS_ARCHIVE"):
        wake("archive", monkeypatch)

    assert stage().stores.archive is None and stage().archive_reader is None
    assert stage().catch_up.archive is None
