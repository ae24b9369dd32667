"""No function asks DynamoDB for more than the blueprint grants it: no engine here checks that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tidings.aws.config.deployment import CAPTURE, FUNCTIONS
from tidings.aws.dynamodb.keys import DynamoDBKeys
from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, core
from tidings.client import publish_with
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Given, Key, bound_of, digest_of
from tidings.core.model.cursors import parse
from tidings.core.settings.resources import Resource

from functions.browse.handler import handle as browse
from functions.capture.handler import handle as capture
from functions.connect.handler import handle as connect
from functions.correct.handler import handle as correct
from functions.disconnect.handler import handle as disconnect
from functions.follow.handler import handle as follow
from functions.forward.handler import handle as forward
from functions.ingest.handler import handle as ingest
from functions.publish.handler import handle as publish
from functions.receive.handler import handle as receive
from functions.replay.handler import handle as replay
from functions.report.handler import handle as report
from functions.steer.handler import handle as steer
from functions.sweep.handler import handle as sweep
from tests.functions import tables
from tests.functions import test_amend as amendments
from tests.functions import test_correct as plans
from tests.functions.changing import administering, indexing, proposing
from tests.functions.cloud import (
    CONNECTION,
    Cloud,
    archive_on_s3,
    event,
    message,
    start_anew,
)
from tests.functions.consuming import consuming
from tests.functions.relaying import relaying, supervising

Asked = set[tuple[str, str]]
ITEM = '{"changeKind":{"resource":"vm","subResources":["nic"]},"changedResourceId":"x"}'
REGISTRATION = {"instance": "i", "changeKind": {"resource": "vm", "subResources": ["nic"]}}
OPERATION = {"event": "update", "type": "video", "id": "x32", "parents": ["user/ann"]}


def post(**headers: str) -> None:
    sent = event("http_post")
    ingest({**sent, "headers": {**sent["headers"], **headers}}, None)


def come(**subscription: Any) -> None:
    connect(event("socket_connect"), None)
    receive(message({"action": "subscribe", **subscription}), None)


def ring(follower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_FOLLOWER", follower)
    start_anew()
    follow({"ring": "main"}, None)


def ingesting(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    asked = watch()
    post()
    post(**{"idempotency-key": "k"})
    post(**{"idempotency-key": "k"})
    ingest(event("http_post", body="{"), None)
    bounded = {"authorization": f"Bearer {posting_within('user/ann').spelled()}"}
    body = json.dumps(OPERATION)
    sent = event("http_post", body=body, isBase64Encoded=False)
    assert ingest({**sent, "headers": {**sent["headers"], **bounded}}, None)["statusCode"] == 204
    return asked


def posting_within(parent: str) -> Given:
    """A key of who posts on objects with *parent*."""
    given, stored = Given("0" * ID_LENGTH, "A" * 32), DynamoDBKeys(clients.dynamodb(), "control")
    bound = bound_of([], [parent])
    key = Key(given.id, digest_of(given.secret), frozenset({Role.INGEST}), bound)
    assert stored.save("main", key)
    return given


def declare() -> None:
    vm = Resource("vm", ("nic",), "/vms")
    standing = adapters.profiles().profile("main")
    assert adapters.profiles().save("main", replace(standing, resources=(vm,), max_age_s=60))


def keep_departures() -> None:
    assert adapters.profiles().save(
        "main", replace(adapters.profiles().profile("main"), leave=True)
    )


def following_state(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    keep_departures()
    post()
    adapters.log().take("main")
    post()
    monkeypatch.setenv("TIDINGS_FOLLOWER", "state")
    start_anew()
    asked = watch()
    follow({"ring": "main"}, None)
    return asked


def following_push(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    keep_departures()
    come(parents=["user/ann"], leave=True)
    post()
    ring("state", monkeypatch)
    monkeypatch.setenv("TIDINGS_FOLLOWER", "push")
    start_anew()
    asked = watch()
    follow({"ring": "main"}, None)
    return asked


def following_archive(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    archive_on_s3(monkeypatch, "s3://kept")  # as a stage has it
    post()
    adapters.log().take("main")
    post()
    monkeypatch.setenv("TIDINGS_FOLLOWER", "archive")
    start_anew()
    asked = watch()
    follow({"ring": "main"}, None)
    return asked


def connecting(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    asked = watch()
    connect(event("socket_connect"), None)
    return asked


def disconnecting(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    come(parents=["user/ann"])
    ring("push", monkeypatch)
    asked = watch()
    disconnect(event("socket_disconnect"), None)
    return asked


def receiving(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    connect(event("socket_connect"), None)
    declare()
    asked = watch()
    receive(message(REGISTRATION), None)
    disconnect(event("socket_disconnect"), None)
    connect(event("socket_connect"), None)
    for said in (
        {"action": "subscribe"},
        {"action": "ping"},
        {"action": "unsubscribe"},
        {"action": "nonsense"},
    ):
        receive(message(said), None)
    return asked


def replaying(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    ring("state", monkeypatch)
    come(**{"from": "0"})
    asked = watch()
    replay({"replay": CONNECTION}, None)
    return asked


def streaming(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    keep_departures()
    post()
    ring("state", monkeypatch)
    asked = watch()
    for cursor in ("0", "now", "545b55c7f095528dd0f3863c"):
        assert parse(cursor)
        stream = core.streamer().open("main", cursor, {"parents": "user/ann", "leave": "true"})
        while not stream.next().at_frontier:
            pass
    adapters.tallies().serve("main", connections=1, sent=2)
    for there in (1, 0):
        adapters.tallies().attend("main", "here", there, until_ms=2**42)
    return asked


def correcting(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    adapters.log().take("main")
    post()
    plans.store(plans.packed(*plans.planned("a", "x32")))
    later = now_ms() + 10_000
    monkeypatch.setattr(adapters, "now_ms", lambda: later)  # the hole is overdue
    asked = watch()
    assert correct(plans.asked(), None)["complete"]
    return asked


def amending(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    adapters.log().take("main")
    post()
    later = now_ms() + 10_000
    monkeypatch.setattr(adapters, "now_ms", lambda: later)  # the hole is overdue
    asked = watch()
    assert amendments.ask(*plans.planned("a", "x32"))[0] == 200
    return asked


def steering(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    ring("state", monkeypatch)
    asked = watch()
    assert steer({"step": "base", "feed": "main"}, None) == {"through": 1}
    return asked


def publishing(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    declare()
    asked = watch()
    sent = event("http_post", body=ITEM, isBase64Encoded=False)
    assert publish(sent, None)["statusCode"] == 204
    keyed = {**sent, "headers": {**sent["headers"], "idempotency-key": "k"}}
    assert publish(keyed, None)["statusCode"] == 204
    assert publish({**sent, "body": "{"}, None)["statusCode"] == 400
    return asked


def forwarding(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    declare()
    for name in ("x", "y\0"):
        item = {"event": "update", "type": "video", "id": name}
        publish_with(clients.dynamodb(), [], outbox="outbox", operations=[item])
    asked = watch()
    forward({}, None)
    return asked


def capturing(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    monkeypatch.setenv("TIDINGS_CAPTURE", tables.VIDEOS)
    start_anew()
    asked = watch()
    capture(tables.told(tables.record("a"), tables.record("\0")), None)
    return asked


def browsing(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    declare()
    asked = watch()
    for route in ("/changefeeds", "/changefeeds/stats", "/feeds/{feed}/objects"):
        answer = browse(event("http_get_status", routeKey=f"GET {route}"), None)
        assert answer["statusCode"] == 200, answer
    one = {"type": "video", "id": "x32"}
    answer = browse(
        event("http_get_status", routeKey=f"GET {route}", queryStringParameters=one), None
    )
    assert answer["statusCode"] == 200, answer
    return asked


def reporting(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    ring("state", monkeypatch)
    post()
    asked = watch()
    assert report(event("http_get_status"), None)["statusCode"] == 200
    return asked


def sweeping(monkeypatch: pytest.MonkeyPatch, watch: Callable[[], Asked]) -> Asked:
    post()
    come(**{"from": "0"})
    asked = watch()
    sweep({}, None)
    core.sweeper().trimmer.run("main")
    adapters.log().raise_floor("main", 1)
    renewer = core.sweeper().trimmer.renewer
    renewer.run("main", 1, 1)
    renewer.store.renew("main", 1, 2**40)
    return asked


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
    "report": reporting,
    "sweep": sweeping,
}


def _text(header: str | bytes) -> str:
    return header.decode() if isinstance(header, bytes) else header


def watched() -> Asked:
    """What the clients of this process ask DynamoDB for, from now on: (table, action)."""
    asked: Asked = set()

    def note(request: Any, **_: object) -> None:
        sent = json.loads(request.body)
        operation = _text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        named = {sent["TableName"]: ()} if "TableName" in sent else {}
        for table in sent.get("RequestItems", named):
            asked.add((table, f"dynamodb:{operation}"))
        for part in sent.get("TransactItems", ()):
            asked.update((each["TableName"], f"dynamodb:{kind}Item") for kind, each in part.items())

    for client in (clients.dynamodb(), clients.dynamodb_once()):
        client.meta.events.register_first("before-send.dynamodb", note)
    return asked


@pytest.mark.parametrize("function", (*FUNCTIONS, CAPTURE), ids=lambda function: function.name)
def test_asks_for_no_more_than_it_is_granted(
    function: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each action on each table stands in the blueprint; and the scene did reach the tables."""
    granted = {(grant.table, action) for grant in function.grants for action in grant.actions}

    asked = SCENES[function.name](monkeypatch, watched)

    assert asked
    assert asked <= granted, sorted(asked - granted)
