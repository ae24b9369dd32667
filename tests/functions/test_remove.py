"""remove: nothing of a deleted feed is left on DynamoDB and S3, and other feeds keep their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from functions.capture.handler import handle as capture
from functions.connect.handler import handle as connect
from functions.erase.handler import handle as erase
from functions.follow.handler import handle as follow
from functions.forward.handler import handle as forward
from functions.index.handler import handle as index
from functions.receive.handler import handle as receive
from functions.remove.handler import handle as remove
from functions.sweep.handler import handle as sweep
from tests.functions import test_capture as captures
from tests.functions.cloud import (
    CONNECTION,
    Cloud,
    archive_on_s3,
    become,
    event,
    give_key,
    lines_of,
    log_here,
    message,
    restart,
)
from tidings.aws import clients
from tidings.aws.config.deployment import TABLES
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits
from tidings.core.archive.segments import Span
from tidings.core.auth.guard import Role
from tidings.core.changeagent.documents import OperatorDocument
from tidings.core.changeagent.tag_index import Summary
from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.errors import FeedDeleted, Unavailable
from tidings.core.feeds.records import DELETED, DELETING, FeedRecord
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.log.append import Claim
from tidings.core.maintenance.retention import Round
from tidings.core.model.cursors import Place
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page
from tidings.core.replication.relay import Relay
from tidings.core.state.removed_parents import RemovedParents
from tidings.core.state.rows import Row
from tidings.core.state.sums import Sums
from tidings.core.state.tombstones import Remembered
from tidings.core.triton.registration import Kind, Listener

REMOVE = "tidings-dev-remove"
NEIGHBOURS = ("main~2", "main.x", "mainx", "x-main")
SETTLED_MS = (limits.ERASE_SETTLE_S + 1) * 1000
AT = 4_102_444_800_000  # in 2100
LINE = line_from({"event": "update", "type": "video", "id": "x"}, now_ms=AT)
KEEPS = {"feeds", "roster"}  # kinds of items that name a feed, but belong to the stage


def fill(feed: str) -> None:
    """Store something of *feed* in each place that has data of feeds."""
    for store in (fill_log, fill_state, fill_settings, fill_consumers):
        store(feed)


def fill_log(feed: str) -> None:
    stores = stage().stores
    for _ in range(3):
        number = stores.log.take(feed, 1)
        stores.log.put(feed, Page(number, LINE, f"{feed} {number}", AT))
    stores.log.raise_floor(feed, 2)
    stores.renewals.save(feed, Round(1, 2))
    stores.claims.claim(feed, Claim("k", "f", "a", 1, AT), now_ms=1)
    lease = stores.followers.take(feed, "state", owner="o", now_ms=1)
    stores.followers.release(lease, force=True)
    assert stores.archive is not None
    stores.archive.put(feed, Span(last=2, first=1), b"part")


def fill_state(feed: str) -> None:
    stores = stage().stores
    stores.state.write(feed, [Row(f"video/{at}", 1, at, AT, LINE) for at in range(9)])
    stores.removed_parents.write(feed, [RemovedParents(1, "{}")])
    stores.tags.write(feed, [Summary(1, 2, b"bits")])
    stores.tombstones.remember(feed, None, Remembered(1, 2, 3))
    stores.sums.write(feed, Sums(version=1, page=1))


def fill_settings(feed: str) -> None:
    stores = stage().stores
    stores.profiles.save(feed, stores.profiles.profile(feed))
    stores.documents.write(feed, "users", OperatorDocument("text", 0))
    stores.key_usage.hold(feed, "gone", "name", until_ms=AT, now_ms=1)
    stores.key_usage.add(feed, "key", 1, 1)
    stores.counters.refuse(feed)
    stores.counters.attend(feed, "here", 1, until_ms=AT)
    stores.relays.write(Relay(feed), Relay(feed))
    stores.relay_passwords.keep(feed, "secret")


def fill_consumers(feed: str) -> None:
    stores = stage().stores
    parked = Parked("0" * 24, LINE, "error", AT)
    change = Change(Consumer(feed, "index", parked=1), Note(AT, "ann", "did", "why"), park=parked)
    assert stores.consumers.write(feed, "index", 0, change)
    found = Erasure(Place(9, 0, 1).encode(), "video", "x", "ann", "why", AT)
    assert stores.erasures.save(feed, found)
    assert stores.erasures.save(feed, replace(found, phase=Phase.DONE, version=1))
    assert stores.erasures.save(feed, replace(found, id=Place(8, 0, 1).encode()))
    assert stores.erasure_ledger is not None
    stores.erasure_ledger.add(feed, found)
    listener = Listener(1, feed, "instance", "service", (Kind("vm", ("nic",)),))
    stores.registry.enter(feed, "elsewhere", listener)


def left(feed: str) -> list[str]:
    """Return the keys of all items and objects that belong to *feed*."""
    return sorted(key for key in everything() if feed in key.replace("#", "/").split("/"))


def everything() -> Iterator[str]:
    """Yield the key of each item, with the feed of a connection, and of each object."""
    for table in TABLES:
        for item in clients.dynamodb().scan(TableName=table.name, ConsistentRead=True)["Items"]:
            partition, sort = item[table.partition_key]["S"], item[table.sort_key[0]]
            if partition in KEEPS:
                continue
            place = partition.replace("+", "/")
            name = next(iter(sort.values())) if partition == "relay" else ""
            of = item.get("feed", {}).get("S", "") if table.name != "log" else ""
            yield f"{table.name}/{place}/{name}/{of}"
    for each in clients.objects().list_objects_v2(Bucket="kept").get("Contents", ()):
        yield each["Key"]


def connected(feed: str = "main") -> None:
    connect(event("socket_connect"), None)
    receive(message({"action": "subscribe", "feed": feed}), None)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    archive_on_s3(monkeypatch, "s3://kept")
    for feed in ("main", *NEIGHBOURS):
        fill(feed)
    give_key(Role.READ)


def delete(name: str = "main") -> FeedRecord:
    return stage().feed_service.delete(name, confirm=name, force=True)


def later(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    at = now_ms() + ms
    monkeypatch.setattr("tidings.aws.effects.now_ms", lambda: at)
    restart()


def is_awake(cloud: Cloud) -> bool:
    return REMOVE in [name for name, _ in cloud.invoked]


def record(name: str = "main") -> FeedRecord:
    found = stage().stores.feed_store.record(name)
    assert found is not None
    return found


def removing(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Any]) -> None:
    """Remove a feed with a client and messages in the outbox, in both passes."""
    use(monkeypatch)
    connected()
    publish_with(clients.dynamodb(), [], outbox="outbox", operations=[captures_operation()])
    delete()
    start_recording()
    remove({}, None)
    later(monkeypatch, SETTLED_MS)
    remove({}, None)
    assert record().state == DELETED


def captures_operation() -> dict[str, str]:
    return {"event": "update", "type": "video", "id": "x"}


def test_nothing_is_left_of_a_deleted_feed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any table or bucket; feeds with similar names and the next feed of the name stay."""
    use(monkeypatch)
    connected()
    publish_with(clients.dynamodb(), [], outbox="outbox", operations=[captures_operation()])
    refused = OutboxMessage(f"{now_ms() - 1:013d}-1", "operations", "{")
    stage().stores.outbox.put_aside("main", refused, "why")
    before = {feed: left(feed) for feed in NEIGHBOURS}
    assert len(left("main")) > 30
    assert all(len(found) > 25 for found in before.values())

    assert delete().state == DELETING
    assert is_awake(cloud)
    remove({}, None)
    assert left("main") == []
    assert {feed: left(feed) for feed in NEIGHBOURS} == before
    assert record().state == DELETING  # a function that runs may still write

    stage().stores.counters.refuse("main")
    remove({}, None)
    assert left("main") != []
    later(monkeypatch, SETTLED_MS)
    remove({}, None)
    assert left("main") == []
    assert {feed: left(feed) for feed in NEIGHBOURS} == before
    assert record().state == DELETED
    (removal,) = record().removals
    counts = dict(removal.counts)
    assert counts["log"] == 3 + 4 and counts["archive"] == 1 and counts["connections"] >= 3, counts


def test_a_client_is_disconnected(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """It receives `feed_deleted` before."""
    use(monkeypatch)
    connected()
    delete()
    remove({}, None)
    (told,) = (said["error"] for _, said in cloud.posted if "error" in said)
    assert (told["code"], told["value"]) == ("feed_deleted", "'main'")
    assert CONNECTION in cloud.closed
    assert stage().stores.connections.get(CONNECTION) is None


def test_a_run_continues_where_the_last_one_was_killed(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to a table may be the last one of a run."""
    use(monkeypatch)
    before = {feed: left(feed) for feed in NEIGHBOURS}
    delete()
    monkeypatch.setattr(limits, "REMOVE_RUN_MS", 0)
    runs = 0
    while record().removals[0].passes == 0:
        remove({}, None)
        restart()
        runs += 1
    assert runs > limits.BUCKETS
    assert left("main") == []
    assert {feed: left(feed) for feed in NEIGHBOURS} == before


def test_what_stops_it_is_logged(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep wakes it again, and the next run completes the removal."""
    use(monkeypatch)
    delete()

    def fail(record: FeedRecord) -> bool:
        raise Unavailable("the store is busy")

    monkeypatch.setattr(stage().stores.feed_store, "save", fail)
    log_here()
    capsys.readouterr()
    remove({}, None)
    (said,) = (each for each in lines_of(capsys) if each["message"] == "removal stopped")
    assert said["reason"] == "the store is busy"
    restart()
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert is_awake(cloud)
    remove({}, None)
    assert left("main") == [] and record().removals[0].passes == 1


def test_the_sweep_wakes_it_only_while_it_has_work(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch)
    sweep(event("schedule"), None)
    assert not is_awake(cloud)
    delete()
    remove({}, None)
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert not is_awake(cloud)  # it waits for functions that run
    later(monkeypatch, SETTLED_MS)
    sweep(event("schedule"), None)
    assert is_awake(cloud)
    remove({}, None)
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert not is_awake(cloud)


@pytest.mark.parametrize("created_again", [False, True])
def test_a_late_wake_up_writes_nothing(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, created_again: bool
) -> None:
    """Records of the stream may be an hour old; nothing reaches the next feed of the name."""
    use(monkeypatch)
    delete()
    if created_again:
        stage().feed_service.create("main")
    remove({}, None)
    before = sorted(everything())
    for follower in ("state", "push", "archive"):
        become(follower, monkeypatch)
        follow({"ring": "main"}, None)
    for handle in (erase, index):
        handle({"ring": "main"}, None)
    assert sorted(everything()) == before


def test_messages_in_the_outbox_belong_to_the_next_feed(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers know only its name. The removal leaves the messages, and they are forwarded."""
    use(monkeypatch)
    delete()
    stage().feed_service.create("main")
    publish_with(clients.dynamodb(), [], outbox="outbox", operations=[captures_operation()])
    remove({}, None)
    later(monkeypatch, SETTLED_MS)
    remove({}, None)
    forward({"ring": "main"}, None)
    assert stage().stores.outbox.pending("main") == []
    head = stage().stores.log.head("main~2")
    (page,) = stage().stores.log.read("main~2", head - 1)
    assert '"x"' in page.text
    assert left("main") == []


def test_a_capture_of_a_deleted_feed_drops_the_writes(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDINGS_CAPTURE", captures.VIDEOS)
    restart()
    delete()
    log_here()
    records = captures.stream_of(captures.record("a"))
    assert capture(records, None) == {"batchItemFailures": []}
    assert any(each["message"] == "writes of the table are dropped" for each in lines_of(capsys))
    assert stage().stores.log.head("main") == 0
    stage().feed_service.create("main")
    capture(records, None)
    assert stage().stores.log.head("main~2") > 1


def test_a_deleted_feed_is_refused(cloud: Cloud) -> None:
    delete()
    with pytest.raises(FeedDeleted):
        stage().directory.key("main")
