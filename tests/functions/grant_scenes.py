"""Scenes in which each function does all that it does; `tests/iam` checks them against its role."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from functions.administer.handler import handle as administer
from functions.browse.handler import handle as browse
from functions.capture.handler import handle as capture
from functions.connect.handler import handle as connect
from functions.correct.handler import handle as correct
from functions.disconnect.handler import handle as disconnect
from functions.follow.handler import handle as follow
from functions.forward.handler import handle as forward
from functions.index.handler import handle as index
from functions.ingest.handler import handle as ingest
from functions.publish.handler import handle as publish
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from functions.report.handler import handle as report
from functions.steer.handler import handle as steer
from functions.sweep.handler import handle as sweep
from tests.functions import test_amend as amendments
from tests.functions import test_capture as captures
from tests.functions import test_correct as plans
from tests.functions import test_erase as erasures
from tests.functions import test_remove as removals
from tests.functions.cloud import CONNECTION, archive_on_s3, become, event, message, restart
from tests.functions.test_consume import consuming
from tests.functions.test_propose import post as propose
from tests.functions.test_supervise import relaying, supervising
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyStore, PresentedKey, bound_of, digest_of
from tidings.core.feeds.records import DELETING, FeedRecord, Removal
from tidings.core.maintenance.retention import Round
from tidings.core.model.cursors import parse
from tidings.core.settings.values import Resource

Requests = set[tuple[str, str]]
StartRecording = Callable[[], Requests]
ITEM = '{"changeKind":{"resource":"vm","subResources":["nic"]},"changedResourceId":"x"}'
FORM = "application/x-www-form-urlencoded"
REGISTRATION = {"instance": "i", "changeKind": {"resource": "vm", "subResources": ["nic"]}}
OPERATION = {"event": "update", "type": "video", "id": "x32", "parents": ["user/ann"]}


def post(**headers: str) -> None:
    ingest(event("http_post", more=headers), None)


def come(**subscription: Any) -> None:
    connect(event("socket_connect"), None)
    receive(message({"action": "subscribe", **subscription}), None)


def wake(follower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    become(follower, monkeypatch)
    follow({"ring": "main"}, None)


def ingesting(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    start_recording()
    post()
    post(**{"idempotency-key": "k"})
    post(**{"idempotency-key": "k"})
    ingest(event("http_post", body="{"), None)
    bounded = {"authorization": f"Bearer {posting_within('user/ann').encode()}"}
    sent = event("http_post", body=json.dumps(OPERATION), more=bounded)
    assert ingest(sent, None)["statusCode"] == 204


def posting_within(parent: str) -> PresentedKey:
    """Return a key of a client that posts on objects with *parent*."""
    given, stored = (
        PresentedKey("0" * ID_LENGTH, "A" * 32),
        KeyStore(DynamoDBRecords(clients.dynamodb(), "control")),
    )
    bound = bound_of([], [parent])
    key = Key(given.id, digest_of(given.secret), frozenset({Role.INGEST}), bound)
    assert stored.save("main", key)
    return given


def declare() -> None:
    vm = Resource("vm", ("nic",), "/vms")
    standing = stage().profiles.profile("main")
    assert stage().profiles.save("main", replace(standing, resources=(vm,), max_age_s=60))


def keep_removed_parents() -> None:
    assert stage().profiles.save("main", replace(stage().profiles.profile("main"), leave=True))


def following_state(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    keep_removed_parents()
    service = stage().erasures
    assert service is not None
    service.request("main", erasures.ENTRY)
    post_around_a_hole()
    become("state", monkeypatch)
    start_recording()
    follow({"ring": "main"}, None)
    forget_sums()
    follow({"ring": "main"}, None)


def forget_sums() -> None:
    """Delete the sums, as if the state were of a release without them: they are counted again."""
    lease = stage().stores.followers.take("main", "state", owner="nobody", now_ms=now_ms())
    stage().stores.followers.release(replace(lease, note=b""), force=True)


def following_push(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    keep_removed_parents()
    come(parents=["user/ann"], leave=True)
    post()
    wake("state", monkeypatch)
    become("push", monkeypatch)
    start_recording()
    follow({"ring": "main"}, None)


def following_archive(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    archive_on_s3(monkeypatch, "s3://kept")  # as a stage has it
    post_around_a_hole()
    become("archive", monkeypatch)
    start_recording()
    follow({"ring": "main"}, None)


def connecting(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    start_recording()
    connect(event("socket_connect"), None)


def disconnecting(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    come(parents=["user/ann"])
    wake("push", monkeypatch)
    start_recording()
    disconnect(event("socket_disconnect"), None)


def receiving(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post()
    connect(event("socket_connect"), None)
    declare()
    start_recording()
    receive(message(REGISTRATION), None)
    disconnect(event("socket_disconnect"), None)
    connect(event("socket_connect"), None)
    for action in ("subscribe", "ping", "unsubscribe", "nonsense"):
        receive(message({"action": action}), None)


def replaying(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post()
    wake("state", monkeypatch)
    come(**{"from": "0"})
    start_recording()
    replay({"replay": CONNECTION}, None)


def streaming(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    keep_removed_parents()
    post()
    wake("state", monkeypatch)
    start_recording()
    for cursor in ("0", "now", "545b55c7f095528dd0f3863c"):
        assert parse(cursor)
        stream = stage().streamer.open("main", cursor, {"parents": "user/ann", "leave": "true"})
        while not stream.next().at_frontier:
            pass
    stage().stores.counters.serve("main", connections=1, sent=2)
    for there in (1, 0):
        stage().stores.counters.attend("main", "here", there, until_ms=2**42)


def post_around_a_hole() -> None:
    post()
    stage().stores.log.take("main")
    post()


def correcting(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post_around_a_hole()
    plans.store(plans.packed(*plans.planned("a", "x32")))
    later = now_ms() + 10_000
    monkeypatch.setattr("tidings.aws.effects.now_ms", lambda: later)  # the hole is overdue
    restart()
    start_recording()
    assert correct(plans.request(), None)["complete"]


def amending(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    archive_on_s3(monkeypatch, "s3://kept")
    post_around_a_hole()
    removed = Removal(1, 1, passes=2, done_ms=2)
    record = FeedRecord("films", is_live=False, last_page=9, removals=(removed,))
    assert stage().stores.feed_store.save(record)
    later = now_ms() + 10_000
    monkeypatch.setattr("tidings.aws.effects.now_ms", lambda: later)  # the hole is overdue
    restart()
    start_recording()
    assert amendments.ask(*plans.planned("a", "x32"))[0] == 200
    assert amendments.look({"keys": ["video/x32"]})[0] == 200
    service = stage().erasures
    assert service is not None
    for key in (None, "k"):
        found = service.request("main", erasures.ENTRY, key)
    assert service.list("main") == []
    assert service.show("main", found.id) == found
    assert stage().erasure_reporter.locations("main", found)
    feeds = stage().feed_service
    assert feeds.create("films")[1]  # after a deletion
    assert feeds.delete("films", confirm="films").state == DELETING
    assert feeds.list()


def steering(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post()
    wake("state", monkeypatch)
    start_recording()
    assert steer({"step": "base", "feed": "main"}, None) == {"through": 1}


def publishing(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    declare()
    start_recording()
    for headers in ({}, {"idempotency-key": "k"}):
        assert publish(event("http_post", body=ITEM, more=headers), None)["statusCode"] == 204
    assert publish(event("http_post", body="{"), None)["statusCode"] == 400


def forwarding(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    declare()
    for name in ("x", "y\0"):
        item = {"event": "update", "type": "video", "id": name}
        publish_with(clients.dynamodb(), [], outbox="outbox", operations=[item])
    start_recording()
    forward({"ring": "main"}, None)


def capturing(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    monkeypatch.setenv("TIDINGS_CAPTURE", captures.VIDEOS)
    restart()
    start_recording()
    capture(captures.stream_of(captures.record("a"), captures.record("\0")), None)


def browsing(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    declare()
    start_recording()
    objects, of_feed = "/feeds/{feed}/objects", "/feeds/{feed}"
    listed = ("/changefeeds", "/changefeeds/stats", f"{of_feed}/sums", f"{of_feed}/clients")
    for route in (*listed, objects):
        answer = browse(event("http_get_status", routeKey=f"GET {route}"), None)
        assert answer["statusCode"] == 200, answer
    one = {"type": "video", "id": "x32"}
    answer = browse(
        event("http_get_status", routeKey=f"GET {route}", queryStringParameters=one), None
    )
    assert answer["statusCode"] == 200, answer


def reporting(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post()
    wake("state", monkeypatch)
    post()
    start_recording()
    assert report(event("http_get_status"), None)["statusCode"] == 200


def proposing(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    start_recording()
    for headers in ({}, {"idempotency-key": "k"}, {"idempotency-key": "k"}):
        propose("1", headers=headers)
    propose("{")


def administering(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    propose("1")
    restart()
    start_recording()
    for key, kind, body in (
        ("GET /health", "", ""),
        ("PUT /health", FORM, "up=true"),
        ("GET /config", "", ""),
        ("PUT /config", "text/yaml", "{}"),
        ("GET /cluster", "", ""),
        ("GET /diagnostics/{part}", "", ""),
    ):
        sent = event("http_get_status", routeKey=key, headers={"content-type": kind}, body=body)
        assert administer({**sent, "pathParameters": {"part": "raft"}}, None)["statusCode"] == 200


def indexing(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    for number in range(limits.SUMMARY_PAGES):
        propose(json.dumps({"data": number, "tags": ["t"]}))
    restart()
    start_recording()
    index({"ring": "main"}, None)
    index({"ring": "main"}, None)


def sweeping(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post()
    come(**{"from": "0"})
    start_recording()
    sweep({}, None)
    stage().retention_service.run("main")
    stage().stores.log.raise_floor("main", 1)
    renewer = stage().retention_service.renewer
    renewer.run("main", Round(), 1, 1)
    renewer.log.renew("main", 1, 2**40)


SCENES = {
    "ingest": ingesting,
    "follow-state": following_state,
    "follow-push": following_push,
    "follow-archive": following_archive,
    "follow-relay": relaying,
    "connect": connecting,
    "disconnect": disconnecting,
    "receive": receiving,
    "replay": replaying,
    "stream": streaming,
    "list": streaming,
    "correct": correcting,
    "amend": amending,
    "steer": steering,
    "publish": publishing,
    "browse": browsing,
    "forward": forwarding,
    "capture": capturing,
    "propose": proposing,
    "administer": administering,
    "consume": consuming,
    "supervise": supervising,
    "index": indexing,
    "erase": erasures.erasing,
    "remove": removals.removing,
    "report": reporting,
    "sweep": sweeping,
}


def _text(header: str | bytes) -> str:
    return header.decode() if isinstance(header, bytes) else header


def record_requests() -> Requests:
    """Record the requests of this process to DynamoDB from now on: (table, action)."""
    requests: Requests = set()

    def note(request: Any, **_: object) -> None:
        sent = json.loads(request.body)
        operation = _text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        named = {sent["TableName"]: ()} if "TableName" in sent else {}
        for table in sent.get("RequestItems", named):
            requests.add((table, f"dynamodb:{operation}"))
        for part in sent.get("TransactItems", ()):
            requests.update(
                (each["TableName"], f"dynamodb:{kind}Item") for kind, each in part.items()
            )

    for client in (clients.dynamodb(), clients.dynamodb_once()):
        client.meta.events.register_first("before-send.dynamodb", note)
    return requests
