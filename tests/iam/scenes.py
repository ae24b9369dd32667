"""Work of functions beyond the scenes of the blueprint's own test: rare cases, and S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.administer.handler import handle as administer
from functions.amend.handler import handle as amend
from functions.browse.handler import handle as browse
from functions.connect.handler import handle as connect
from functions.consume.handler import handle as consume
from functions.disconnect.handler import handle as disconnect
from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.propose.handler import handle as propose
from functions.publish.handler import handle as publish
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from functions.steer.handler import handle as steer
from functions.supervise.handler import handle as supervise
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import CONNECTION, archive_on_s3, event, message, restart
from tests.functions.grant_scenes import OPERATION, Requests, come, posting_within
from tests.functions.test_archive import given_up
from tests.functions.test_erase import erasing_a_parent, requested, use
from tests.functions.test_remove import delete
from tests.iam.stages import SOURCES
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.stage import stage
from tidings.client import publish_with
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyStore, PresentedKey, digest_of
from tidings.core.errors import Chained
from tidings.core.model.cursors import START

StartRecording = Callable[[], Requests]
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
