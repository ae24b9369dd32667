"""The authorization matrix: every actor, every route and message, on every transport."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import pytest

from functions.connect.handler import handle as connect
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from tests.functions.authorization import (
    ACTORS,
    ANNS,
    OPERATION,
    PRODUCER,
    READER,
    VIDEOS,
    Actor,
    RouteRequest,
    headers,
    refused,
    requests,
)
from tests.functions.cloud import Cloud, event, message, restart
from tests.functions.streaming import SSE, read
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.auth.guard import ADMIN, PASSWORD_ROLES, PUBLIC, READ, READ_ALL, Role
from tidings.core.auth.keys import Key, KeyIssuer, KeyStore, PresentedKey
from tidings.core.auth.passwords import hash_password
from tidings.core.model.feeds import HOST
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Resource

PROFILE = Profile(
    read_passwords=(hash_password(READER, salt=b"1" * 16, now_ms=0),),
    ingest_passwords=(hash_password(PRODUCER, salt=b"2" * 16, now_ms=0),),
    resources=(Resource("video", ("title",), "/videos"),),
    max_age_s=3600,
)
GIVEN = PresentedKey("3k2m9c0q8xw1", "s" * 32)
REGISTRATION: dict[str, object] = {
    "instance": "i",
    "changeKind": {"resource": "video", "subResources": ["title"]},
}
MESSAGE: dict[str, dict[str, object]] = {
    "subscribe": {"action": "subscribe"},
    "resume": {"action": "resume", "cursor": "now"},
    "unsubscribe": {"action": "unsubscribe"},
    "ping": {"action": "ping"},
    "register": REGISTRATION,
}
# How it is shown makes a difference for a password and for a key: one of each, and of none good.
AS_BEARER = {"the read password", "a key with all roles", "a revoked key"}
SHOWN = [
    (actor, bearer)
    for actor in ACTORS
    for bearer in (False, True)
    if not bearer or actor.name in AS_BEARER
]

OUTSIDE = ("key: is bounded", "needs read", "does not permit")
# A WebSocket client's messages with their needs; `register` is a listener's first message.
MESSAGES = {
    **dict.fromkeys(("subscribe", "resume"), READ),
    **dict.fromkeys(("unsubscribe", "ping"), PUBLIC),
    "register": READ_ALL,
}


@pytest.fixture
def closed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Two feeds of a deployed stage; `main` has its passwords."""
    monkeypatch.delenv("TIDINGS_OPEN")
    monkeypatch.setattr(limits, "MISSES_MAX", 1000)  # the tests make many failed attempts
    monkeypatch.setenv("TIDINGS_FEEDS", "main,other")
    restart()
    assert stage().profiles.save("main", PROFILE)
    return cloud


def secret_of(actor: Actor) -> str:
    """Return the credential of *actor*; its key is made as operators make them."""
    if not actor.has_key:
        return actor.password
    stored = KeyStore(DynamoDBRecords(clients.dynamodb(), "control"))
    issuer = KeyIssuer(stored, stage().profiles, lambda: now_ms() - 60_000)
    expires_ms = now_ms() - 1000 if actor.ended == "expired" else 0
    wanted = Key("", "", actor.roles, actor.bound, expires_ms=expires_ms, feeds=actor.feeds)
    scope = HOST if actor.of_host else "other" if actor.ended == "foreign" else "main"
    issuer.create(scope, GIVEN, wanted)
    if actor.ended == "revoked":
        issuer.revoke("main", GIVEN.id)
    shown = PresentedKey(GIVEN.id, "x" * 32) if actor.ended == "wrong" else GIVEN
    return shown.encode()


def expected(actor: Actor, asked: RouteRequest, *, bearer: bool) -> int:
    if asked.path == "/relays" and actor.ended == "foreign":
        return 200  # it lists every readable feed: the other one
    if asked.is_of_host and not actor.of_host:
        return 401  # the credential is one of a feed
    if asked.path == "/health" and asked.is_of_host and actor.feeds:
        return 403  # the host has other feeds
    administers = Role.ADMIN in actor.roles or (actor.password == PRODUCER and not bearer)
    if asked.route.key == "GET /feeds/{feed}" and administers:
        return refused(actor, ADMIN) or asked.status  # the record is also for administrators
    if asked.path in ("/relays", "/feeds") and actor.of_host and Role.READ in actor.roles:
        return 200  # it lists what the key permits
    if bearer and not actor.has_key and asked.need.role is not None:
        return 401  # a password is not accepted as a bearer token
    return refused(actor, asked.need) or asked.status


@dataclass(frozen=True)
class Client:
    """Asks the function of a route as API Gateway and the function URL hand it over."""

    secret: str
    bearer: bool
    more: Mapping[str, str] = field(default_factory=dict)

    def status(self, asked: RouteRequest) -> int:
        if asked.route.function in ("stream", "list"):
            return self._streamed(asked)
        handler = importlib.import_module(f"functions.{asked.route.function}.handler")
        answer: dict[str, Any] = handler.handle(self._event(asked), None)
        return int(answer["statusCode"])

    def _streamed(self, asked: RouteRequest) -> int:
        shown = headers(self.secret, bearer=self.bearer)
        sent = {**SSE, "last-event-id": "0", **shown}
        return read(asked.path, headers=sent, query=asked.query, until="live")[0]

    def _event(self, asked: RouteRequest) -> dict[str, Any]:
        base = event("http_post")
        http = {**base["requestContext"]["http"], "method": asked.method, "path": asked.path}
        shown = headers(self.secret, bearer=self.bearer)
        return {
            **base,
            "routeKey": asked.route.key,
            "rawPath": asked.path,
            "requestContext": {**base["requestContext"], "http": http},
            "headers": {"host": "h", "content-type": asked.kind, **shown, **self.more},
            "pathParameters": dict(asked.parameters),
            "queryStringParameters": dict(parse_qsl(asked.query)),
            "body": asked.body,
        }


@pytest.mark.parametrize(
    ("actor", "bearer"),
    SHOWN,
    ids=[f"{actor.name}-{'bearer' if bearer else 'basic'}" for actor, bearer in SHOWN],
)
def test_every_route_lets_in_whom_its_need_names(closed: Cloud, actor: Actor, bearer: bool) -> None:
    """Each with exactly the status that follows from the table of routes."""
    client = Client(secret_of(actor), bearer)
    asked = requests()
    found = {each.name: client.status(each) for each in asked}
    assert found == {each.name: expected(actor, each, bearer=bearer) for each in asked}


def said(cloud: Cloud, name: str, secret: str) -> int:
    """0 where a message does what it is for, else the status of the error; on a new connection."""
    cloud.around.asked.clear()
    connect(event("socket_connect"), None)
    shown = {"password": secret} if secret else {}
    receive(message({**MESSAGE[name], **shown}), None)
    told = next(each.body.decode() for each in cloud.around.asked if "connections" in each.path)
    if not told.startswith("{"):  # a listener gets the reason, and is disconnected
        return 403 if any(rule in told for rule in OUTSIDE) else 401
    codes = {"outside_key": 403, "wrong_key": 401, "wrong_password": 401}
    return codes[json.loads(told)["error"]["code"]] if "error" in told else 0


@pytest.mark.parametrize("actor", ACTORS, ids=[actor.name for actor in ACTORS])
def test_every_message_lets_in_whom_its_need_names(closed: Cloud, actor: Actor) -> None:
    """The field `password` takes a key; a connection that was refused may say another."""
    secret = secret_of(actor)
    found = {name: said(closed, name, secret) for name in MESSAGES}
    assert found == {name: refused(actor, need) for name, need in MESSAGES.items()}


@pytest.mark.parametrize("body", [OPERATION.replace("ann", "bob"), OPERATION.replace("video", "x")])
def test_a_bounded_key_posts_within_its_bound(closed: Cloud, body: str) -> None:
    """Else nothing of the request is written, and the operation is named."""
    bound = ANNS if "bob" in body else VIDEOS
    secret = secret_of(Actor("", roles=frozenset({Role.INGEST}), bound=bound))
    shown = headers(secret, bearer=False)
    answer = ingest(event("http_post", body=f"[{OPERATION},{body}]", more=shown), None)
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"]) == (403, "outside_key")
    assert error["field"] == "operations[1]" and stage().stores.log.head("main") == 0


def test_the_table_has_every_role() -> None:
    """And passwords are those of the roles that have one."""
    assert {role.value for role in PASSWORD_ROLES} == {"read", "ingest"}
    assert {each.need.role for each in requests()} >= {None, *PASSWORD_ROLES}
