"""Scenes in which each function does all that it does, which are checked against its role."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from functions.administer.handler import handle as administer
from functions.amend.handler import handle as amend
from functions.browse.handler import handle as browse
from functions.capture.handler import handle as capture
from functions.connect.handler import handle as connect
from functions.consume.handler import handle as consume
from functions.correct.handler import handle as correct
from functions.disconnect.handler import handle as disconnect
from functions.follow.handler import handle as follow
from functions.forward.handler import handle as forward
from functions.index.handler import handle as index
from functions.ingest.handler import handle as ingest
from functions.propose.handler import handle as propose
from functions.publish.handler import handle as publish
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from functions.report.handler import handle as report
from functions.steer.handler import handle as steer
from functions.supervise.handler import handle as supervise
from functions.sweep.handler import handle as sweep
from tests.functions import test_amend as amendments
from tests.functions import test_capture as captures
from tests.functions import test_correct as plans
from tests.functions import test_erase as erasures
from tests.functions import test_remove as removals
from tests.functions.cloud import CONNECTION, archive_on_s3, become, event, message, restart
from tests.functions.test_archive import given_up
from tests.functions.test_consume import consuming
from tests.functions.test_erase import erasing_a_parent, requested, use
from tests.functions.test_ingest import post as post_change
from tests.functions.test_remove import delete
from tests.functions.test_supervise import relaying, supervising
from tests.iam.stages import SOURCES
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyStore, PresentedKey, bound_of, digest_of
from tidings.core.errors import Chained
from tidings.core.feeds.records import DELETING, FeedRecord, Removal
from tidings.core.maintenance.retention import Round
from tidings.core.model.cursors import START, parse
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
        post_change("1", headers=headers)
    post_change("{")


def administering(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    post_change("1")
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
        post_change(json.dumps({"data": number, "tags": ["t"]}))
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


Scene = Callable[[pytest.MonkeyPatch, StartRecording], object]
RESUME = {"action": "resume", "cursor": START.encode()}
LONG_AGO = {
    "action": "resume",
    "cursor": "000000010000000001000000",
}  # the log's first page, but old


def _archived(monkeypatch: pytest.MonkeyPatch) -> None:
    archive_on_s3(monkeypatch, "s3://kept")
    given_up(monkeypatch)
    restart()


def resuming_from_the_archive(
    monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording
) -> None:
    _archived(monkeypatch)
    connect(event("socket_connect"), None)
    start_recording()
    receive(message(LONG_AGO), None)


def replaying_the_archive(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    _archived(monkeypatch)
    connect(event("socket_connect"), None)
    receive(message(RESUME), None)
    start_recording()
    replay({"replay": CONNECTION}, None)


def streaming_the_archive(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    _archived(monkeypatch)
    start_recording()
    stream = stage().streamer.open("main", START.encode())
    while not stream.next().at_frontier:
        pass


def receiving_from_a_stranger(
    monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording
) -> None:
    disconnect(event("socket_disconnect"), None)
    start_recording()
    receive(event("socket_message"), None)


def reporting_a_failure(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    region: dict[str, str] = {"LocationConstraint": "eu-west-1"}
    clients.objects().create_bucket(Bucket="syncs", CreateBucketConfiguration=region)  # type: ignore[arg-type]
    key = "plans/one/failure.json"
    clients.objects().put_object(Bucket="syncs", Key=key, Body=b'{"failed":"why"}')
    start_recording()
    failed = {"error": {"Error": "States.TaskFailed", "Cause": "ExitCode: 1"}}
    steer({"step": "report", "id": "one", "bucket": "syncs", "state": failed}, None)


def refusing_a_copy(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    monkeypatch.setenv("TIDINGS_SOURCES", json.dumps(SOURCES))
    restart()
    start_recording()
    request = {"feed": "main", "dump": "s3://syncs/dumps/one.ndjson"}
    given = {"id": "one", "bucket": "syncs", "region": "eu-west-1", "request": request}
    with pytest.raises(Chained):
        steer({**given, "step": "check"}, None)


def filling_a_hole(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    ingest(event("http_post"), None)
    stage().stores.log.take("main")
    ingest(event("http_post"), None)
    monkeypatch.setenv("TIDINGS_FOLLOWER", "push")
    monkeypatch.setattr(limits, "HOLE_GRACE_MS", 0)
    restart()
    start_recording()
    follow({"ring": "main"}, None)


def posting_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording
) -> None:
    shown = {"authorization": f"Bearer {posting_within('user/ann').encode()}"}
    sent = event("http_post", body=json.dumps(OPERATION), isBase64Encoded=False)
    start_recording()
    ingest({**sent, "headers": {**sent["headers"], **shown}}, None)


def sweeping_connections(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    """Sweep one that joins, an expired one, and a lane that the feed no longer has."""
    come()
    stage().stores.followers.take("main", "push-1", owner="lane", now_ms=0)
    start_recording()
    sweep({}, None)
    monkeypatch.setattr(limits, "CONNECTION_MS_MAX", -1)
    sweep({}, None)


def yielding(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    """Take the last number, and put an empty page under it."""
    path = {"feed": "main", "action": "yield"}
    body = json.dumps({"to": "https://b.example/feeds/main"})
    sent = event("http_post", body=body, isBase64Encoded=False)
    start_recording()
    answer = supervise(
        {**sent, "routeKey": "POST /feeds/{feed}/relay/{action}", "pathParameters": path}, None
    )
    assert answer["statusCode"] == 200, answer


def sweeping_with_an_archive(
    monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording
) -> None:
    monkeypatch.setenv("TIDINGS_ARCHIVE_SECONDS", "0")
    archive_on_s3(monkeypatch, "s3://kept")
    ingest(event("http_post"), None)
    start_recording()
    sweep({}, None)


def sweeping_what_waits(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    """Sweep a message in the outbox, and pages without a summary."""
    monkeypatch.setattr(limits, "SUMMARY_PAGES", 1)
    ingest(event("http_post"), None)
    publish_with(clients.dynamodb(), [], outbox="outbox", operations=[OPERATION])
    start_recording()
    sweep({}, None)


def sweeping_an_erasure(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    use(monkeypatch)
    requested(monkeypatch)
    start_recording()
    sweep({}, None)


def sweeping_a_removal(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
    delete()
    start_recording()
    sweep({}, None)


def _with_a_rated_key(ask: Callable[[dict[str, str]], object]) -> Scene:
    """Call *ask* with the headers of a client with a key; without headers, the key is `SHOWN`."""

    def scene(monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording) -> None:
        stored = KeyStore(DynamoDBRecords(clients.dynamodb(), stage().settings.control_table))
        digest = digest_of(SHOWN.secret)
        assert stored.save("main", Key(SHOWN.id, digest, frozenset(Role), rate=5))
        start_recording()
        ask({"authorization": f"Bearer {SHOWN.encode()}", "content-type": "application/json"})

    return scene


def _send(handle: Callable[..., object], key: str, **fields: Any) -> Scene:
    path = {"feed": "main", "name": "index"}
    sent = event("http_get_status", routeKey=key, pathParameters=path, **fields)
    return _with_a_rated_key(lambda headers: handle({**sent, "headers": headers}, None))


def _said(_: object) -> None:
    connect(event("socket_connect"), None)
    receive(message({"action": "subscribe", "password": SHOWN.encode()}), None)


def replaying_for_a_rated_key(
    monkeypatch: pytest.MonkeyPatch, start_recording: StartRecording
) -> None:
    """Bytes read count against the rate."""

    def replayed(_: object) -> None:
        come(**{"from": "0"}, password=SHOWN.encode())
        restart()  # another process than the one that received it
        start_recording()
        replay({"replay": CONNECTION}, None)

    _with_a_rated_key(replayed)(monkeypatch, set)


def _let_in(_: object) -> None:
    stage().guard.check("main", Role.READ, Credential(SHOWN.encode(), bearer=True))


def _amended(headers: dict[str, str]) -> None:
    sent = event("http_post", routeKey="POST /feeds/{feed}/corrections", body="")
    more = {"pathParameters": {"feed": "main"}, "queryStringParameters": {"through": "0"}}
    amend({**sent, **more, "headers": {**headers, "content-type": "application/x-ndjson"}}, None)


SHOWN = PresentedKey("0" * ID_LENGTH, "A" * 32)
RATED = {
    "ingest": _with_a_rated_key(lambda h: ingest(event("http_post", headers=h), None)),
    "propose": _send(propose, "POST /changes", body="1"),
    "publish": _send(publish, "POST /changefeeds", body="{}"),
    "amend": _with_a_rated_key(_amended),
    "browse": _send(browse, "GET /feeds/{feed}/objects"),
    "administer": _send(administer, "GET /config"),
    "consume": _send(consume, "GET /feeds/{feed}/consumers"),
    "supervise": _send(supervise, "GET /feeds/{feed}/relay"),
    "receive": _with_a_rated_key(_said),
    "stream": _with_a_rated_key(_let_in),
    "list": _with_a_rated_key(_let_in),
}
FURTHER: dict[str, tuple[Scene, ...]] = {
    "receive": (resuming_from_the_archive, receiving_from_a_stranger),
    "replay": (replaying_the_archive, replaying_for_a_rated_key),
    "stream": (streaming_the_archive,),
    "list": (streaming_the_archive,),
    "ingest": (posting_within_a_bound,),
    "steer": (reporting_a_failure, refusing_a_copy),
    "follow-push": (filling_a_hole,),
    "supervise": (yielding,),
    "sweep": (
        sweeping_connections,
        sweeping_a_removal,
        sweeping_with_an_archive,
        sweeping_what_waits,
        sweeping_an_erasure,
    ),
    "erase": (erasing_a_parent,),
}

MORE = {
    name: (*FURTHER.get(name, ()), *([RATED[name]] if name in RATED else ()))
    for name in {*FURTHER, *RATED}
}
