"""Each route and transport with each kind of credential, on a feed with marked objects outside of
it.

The table consists of the routes themselves, so that a new route is in it by itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from jwt.algorithms import ECAlgorithm

from tests.functions.authorization import RouteRequest, requests
from tests.functions.test_oidc import EC
from tests.unit.server.test_crashes import hosted
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey
from tidings.core.auth.origins import RepeatedHeader
from tidings.core.auth.passwords import hash_password
from tidings.core.durable_streams.messages import TYPE
from tidings.core.model.feeds import HOST
from tidings.core.model.filters import Filter
from tidings.core.settings.profiles import Profile
from tidings.core.state.rows import bucket_of
from tidings.http.routes import HTTP_ROUTES, SERVER_ROUTES
from tidings.http.wire import HttpRoute
from tidings.server import host as host_module
from tidings.server.app import ServerApp
from tidings.server.host import Host, now_ms
from tidings.server.http_server import HostCheck

# In the type, id, data, parents, tags and so on of objects outside the bound by type, outside that
# by parent, and outside of both.
OTHER_TYPE, OTHER_PARENT, MARK = MARKS = ("qzxtype", "qzxparent", "qzxboth")
HIDDEN = "qzxfeed"  # in the names of feeds; the status names feeds to every client (PROTOCOL 9.4)
PATIENCE_S = 100.0
PUB, MINE = Filter(frozenset({"pub", TYPE})), Filter(parents=frozenset({"p/mine"}))
BOTH = Filter(PUB.types, MINE.parents)
PASSWORD, LATER = "the first password", "the second password"
# Cursors of the beginning of the log and of a copy of everything, and a text of the last event.
LAST = {"0000000000000000007fffff": '"own19"', "0": '"live"'}
EVERY = tuple(Role)
# The marks that a credential may see; others may see none.
VISIBLE = {"type": OTHER_PARENT, "parent": OTHER_TYPE}
# Each by its name: the roles, and other fields of a key of the feed main or of the host.
KEYS: dict[str, tuple[tuple[Role, ...], dict[str, Any]]] = {
    "a type": ((Role.READ, Role.INGEST), {"bound": PUB}),
    "a parent": ((Role.READ, Role.INGEST), {"bound": MINE}),
    "both": ((Role.READ, Role.INGEST), {"bound": BOTH}),
    "a producer": ((Role.INGEST,), {}),
    "revoked": (EVERY, {}),
    "expired": (EVERY, {"expires_ms": 1}),
    "another feed": (EVERY, {}),
    "a prefix of the host": (EVERY, {"feeds": ("team-",)}),
    "a derived prefix": (EVERY, {"feeds": ("team-x",), "made_by": f"key {7:012}"}),
    "a key of the host by type": ((Role.READ,), {"feeds": ("ma",), "bound": PUB}),
}
VARIANTS = (
    "",
    "types=pub&erasures=true&leave=true&trace=true",
    "types=*&ids=*&parents=p/mine&share=mod:1:0&size=4194304",
    "limit=1&after=&from=oldest&deleted=true&tag=p/mine&type=pub",
    "limit=1&after=0/a&since=0&host=true&type=zzz&id=taken",
    "after=a&bucket={bucket}&why=x&by=y&live=sse&offset=-1&confirm=a",
    "bucket={bucket}&types=pub&limit=1&after=m&offset=-1&cursors=true",
    "size=4194304",
)
SETTINGS = {
    "TIDINGS_FEEDS": "main,other",
    "TIDINGS_OPEN": "false",
    "TIDINGS_OIDC": '{"issuer":"http://127.0.0.1/i","audience":"tidings","claim":"g"}',
}
ADMIN = PresentedKey("a" * 12, "s" * 32)
STREAM_NAME = "/feeds/main/v1/stream/own"


def secret(name: str) -> PresentedKey:
    return PresentedKey(f"{[*KEYS].index(name):012}", "s" * 32)


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'x:{password}'.encode()).decode()}"


def token(grants: list[dict[str, Any]], expires_s: float = 3600) -> str:
    claims = {"iss": "http://127.0.0.1/i", "aud": "tidings", "sub": "s", "g": grants}
    signed = {**claims, "exp": int(time.time() + expires_s)}
    return jwt.encode(signed, EC, algorithm="ES256", headers={"kid": "one"})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each list have a continuation, and let streams last."""
    for name in ("BATCH_BYTES", "OBJECTS_MAX", "OBJECTS_READS_MAX"):
        monkeypatch.setattr(limits, name, 2)
    for name in ("STREAM_LIVE_S", "STREAM_WAIT_S", "CHANGES_BLOCK_S_MAX", "BATCH_BLOCK_S_MAX"):
        monkeypatch.setattr(limits, name, 10_000)
    monkeypatch.setattr(limits, "MISSES_MAX", 10**6)
    document = json.loads(ECAlgorithm.to_jwk(EC.public_key()))
    found = {"jwks_uri": "http://127.0.0.1/keys", "keys": [{**document, "kid": "one"}]}
    ask = "tidings.http.outbound.credentials.ask_over_http"
    monkeypatch.setattr(ask, lambda url, ca_certs: found)


@dataclass
class Call:
    """A request to *app*, with everything that was received until now."""

    app: ServerApp
    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    until: tuple[str, ...] = ("event: live", '"upToDate":true', '"error"')
    said: str = ""
    status: int = 0

    @property
    def ends_itself(self) -> bool:
        """Return False for a list that waits, and for a WebSocket that waits for an operation."""
        return self.path in ("/ops", STREAM_NAME)

    async def __aenter__(self) -> Call:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.news = asyncio.Event()
        is_socket = self.method == "WEBSOCKET"
        if is_socket:
            self.incoming.put_nowait({"type": "websocket.connect"})
            self.incoming.put_nowait({"type": "websocket.receive", "text": self.body})
        else:
            self.incoming.put_nowait({"type": "http.request", "body": self.body.encode()})
        sent = {"host": "localhost", "accept-encoding": "identity", **self.headers}
        scope = {
            "type": "websocket" if is_socket else "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        self.task = asyncio.ensure_future(self.app(scope, self.incoming.get, self.take))
        return self

    async def take(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        head = b"\n".join(b": ".join(pair) for pair in message.get("headers", ()))
        self.said += head.decode() + message.get("body", b"").decode() + message.get("text", "")
        self.news.set()

    async def ended(self) -> Call:
        """Return when the answer is complete, or has one of the texts *until*."""
        end_s = time.monotonic() + PATIENCE_S
        while not (self.task.done() or any(text in self.said for text in self.until)):
            assert time.monotonic() < end_s, self
            self.news.clear()
            news = asyncio.ensure_future(self.news.wait())
            await asyncio.wait({self.task, news}, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        is_socket = self.method == "WEBSOCKET"
        gone = {"type": "websocket.disconnect", "code": 1000} if is_socket else None
        self.incoming.put_nowait(gone or {"type": "http.disconnect"})
        await asyncio.wait({self.task}, timeout=PATIENCE_S)
        self.task.result()


def request_of(route: HttpRoute) -> RouteRequest:
    """Return the request for *route* of the table of permissions, or one for a new route."""
    known = {each.route.key: each for each in requests()}
    parameters = {"feed": "main", "name": "own", "id": "1", "action": "x", "part": "id"}
    return known.get(route.key) or RouteRequest(route, 0, route.need, parameters)


def operation(kind: str, name: str, data: str, *parents: str) -> dict[str, Any]:
    return {"event": "update", "type": kind, "id": name, "data": data, "parents": parents}


async def done(app: ServerApp, method: str, path: str, body: object, key: str) -> Call:
    kind = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    path, _, query = path.partition("?")
    async with Call(app, method, path, query, kind, json.dumps(body)) as call:
        await call.ended()
    assert 200 <= call.status < 300, call.said
    return call


async def fill(host: Host, app: ServerApp) -> None:
    """Store objects and everything else, inside and outside of the bounds, as an administrator."""
    issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)
    past = KeyIssuer(host.stores.keys, host.profiles, lambda: 0)

    def credentials() -> None:
        hashed = hash_password(PASSWORD, salt=b"1" * 16, now_ms=0)
        host.profiles.save("main", Profile(leave=True, read_passwords=(hashed,)))
        for scope in (HOST, "main"):
            issuer.create(scope, ADMIN, Key("", "", frozenset(EVERY), label=MARK))
        for name, (roles, fields) in KEYS.items():
            scope = HOST if "feeds" in fields else "other" if name == "another feed" else "main"
            wanted = Key("", "", frozenset(roles), **fields)
            (past if name == "expired" else issuer).create(scope, secret(name), wanted)
        issuer.revoke("main", secret("revoked").id)

    await asyncio.to_thread(credentials)
    feed = "/feeds/main"
    outside = operation(MARK, f"{MARK}0", MARK, f"p/{MARK}")
    bodies: list[tuple[str, str, object]] = [
        ("POST", f"{feed}/ops", outside),  # in the first pages, so that each list has them
        ("POST", f"{feed}/erasures", {"type": MARK, "id": f"{MARK}0", "reason": MARK}),
        *(("PUT", f"/feeds/{name}", {}) for name in (f"a-{HIDDEN}", f"zz-{HIDDEN}", "team-x")),
        ("POST", f"{feed}/changes", {"data": MARK, "tags": [MARK]}),
        ("PUT", f"{feed}/consumers/own", {"types": [MARK]}),
        ("PUT", f"{feed}/hooks/mine", {"url": f"https://{MARK}.example"}),
        ("PUT", STREAM_NAME, [1]),
        ("POST", f"{feed}/ops", {**outside, "id": f"{MARK}1", "event": "delete"}),
    ]
    for number in range(20):
        operations = [
            operation(MARK, f"{MARK}{number + 2}", MARK, f"p/{MARK}"),
            operation("pub", f"{OTHER_PARENT}{number}", OTHER_PARENT, f"p/{OTHER_PARENT}"),
            operation(OTHER_TYPE, f"{OTHER_TYPE}{number}", OTHER_TYPE, "p/mine"),
            operation("pub", f"own{number}", "1", "p/mine"),
        ]
        bodies.append(("POST", f"{feed}/ops", operations))
    for method, path, body in bodies:
        await done(app, method, path, body, ADMIN.encode())
    await asyncio.to_thread(host.sweep)
    reader = host.catch_up.reader
    while reader.checkpoints.checkpoints("main").get("state", 0) < host.stores.log.head("main"):
        await asyncio.sleep(0.01)


def credentials() -> Iterator[tuple[str, str]]:
    """Yield the name and the header of each credential."""
    bounds = {"types": [*(PUB.types or ())]}
    yield "anonymous", ""
    yield "a wrong password", basic("wrong")
    for name in KEYS:
        yield name, f"Bearer {secret(name).encode()}"
    yield "a key with a wrong secret", f"Bearer tdk_{'a' * 12}_{'x' * 32}"
    yield "a token by type", f"Bearer {token([{'feed': 'ma*', 'roles': ['read'], **bounds}])}"
    yield "a token of a prefix", f"Bearer {token([{'feed': 'team-*', 'roles': ['admin', 'read']}])}"
    yield "an old token", f"Bearer {token([{'feed': '*', 'roles': ['admin', 'read']}], -3600)}"


def calls(route: HttpRoute, app: ServerApp, given: str, *, all_variants: bool) -> Iterator[Call]:
    """Yield the requests of *route* with the header *given*."""
    asked = request_of(route)
    headers = {"content-type": asked.kind, "authorization": given}
    body = asked.body.replace('"type":"video","id":"x"', f'"type":"pub","id":"{OTHER_PARENT}1"')
    buckets = [bucket_of(f"{name}/{name}{number}") for name in MARKS for number in (2, 3)]
    variants = VARIANTS if all_variants and route.method == "GET" else VARIANTS[:1]
    path = asked.path.replace("/nobody", "/own")
    if route.function == "stream":
        for cursor, last in LAST.items():
            for accept, query in (("text/event-stream", ""), ("application/x-ndjson", VARIANTS[1])):
                headers |= {"accept": accept, "last-event-id": cursor}
                until = (last, "event: live", '"error"')
                yield Call(app, "GET", path, query, {**headers}, until=until)
        return
    for variant in variants:
        for bucket in buckets if "{bucket}" in variant and path.endswith("rows") else buckets[:1]:
            query = variant.format(bucket=bucket) or asked.query
            yield Call(app, asked.method, path, query, headers, body)


def messages(app: ServerApp, given: str) -> Iterator[Call]:
    """Yield the messages of WebSockets with the credential of the header *given*."""
    password = given.rpartition(" ")[2]
    wanted = {"password": password, "leave": True, "erasures": True}
    for more in ({}, {"parents": ["p/mine"]}, {"types": ["pub"]}):
        for cursor, last in LAST.items():
            body = json.dumps({"action": "resume", "cursor": cursor, **wanted, **more})
            yield Call(app, "WEBSOCKET", "/ws", body=body, until=(last, '"error"'))
    kind = {"resource": "pub", "subResources": []}
    body = json.dumps({"instance": "i", "password": password, "changeKind": kind})
    yield Call(app, "WEBSOCKET", "/ws", body=body)


def test_nothing_outside_a_bound_is_in_any_answer(tmp_path: Path) -> None:
    """Not in a body, header, continuation, count, error or event, on any transport."""

    async def play() -> None:
        async with hosted(tmp_path / "feed.db", None, **SETTINGS) as (host, app):
            await fill(host, app)
            for name, given in credentials():
                seen = next((mark for word, mark in VISIBLE.items() if name.endswith(word)), "")
                bounded = bool(seen) or name == "both"
                for route in (*HTTP_ROUTES, *SERVER_ROUTES):
                    for each in calls(route, app, given, all_variants=bounded):
                        await check(each, name, seen)
                for each in messages(app, given):
                    await check(each, name, seen)

    asyncio.run(play())


async def check(asked: Call, name: str, seen: str) -> None:
    async with asked as call:
        await call.ended()
    hidden = () if call.path.endswith("/status") else (HIDDEN,)
    marks = [mark for mark in (*MARKS, *hidden) if mark in call.said.lower() and mark != seen]
    assert not marks, (name, call.method, call.path, call.query, call.body, call.said)
    assert call.status != 500, (name, call.method, call.path, call.query, call.said)
    if call.path.endswith("/pages") and "types=" not in call.query and "{" in call.said:
        assert '"filtered":0' in call.said or '"error"' in call.said, (name, call.said)


def test_credentials_are_checked_before_everything_else(tmp_path: Path) -> None:
    """A request with a wrong credential and nothing valid is refused because of the credential."""
    query = "nope=1&limit=x&bucket=z&after=%00&host=maybe&size=x&since=x&live=x&types=%00&confirm="

    async def play() -> None:
        async with hosted(tmp_path / "feed.db", None, **SETTINGS) as (host, app):
            await fill(host, app)
            found: dict[str, int] = {}
            for route in (*HTTP_ROUTES, *SERVER_ROUTES):
                asked = request_of(route)
                for given in ("", basic("wrong"), f"Bearer {secret('revoked').encode()}"):
                    headers = {"authorization": given, "content-type": "a/b", "last-event-id": "x"}
                    headers["accept"] = "*/*"
                    encoded = {"content-encoding": "gzip", "idempotency-key": "\x7f" * 999}
                    headers |= encoded if asked.body else {}
                    if asked.need.role is not None:
                        async with Call(app, asked.method, asked.path, query, headers, "{") as call:
                            await call.ended()
                        found[f"{route.key} {given:.9}"] = call.status
            assert {name: status for name, status in found.items() if status != 401} == {}

    asyncio.run(play())


async def opened(app: ServerApp, given: str) -> list[Call]:
    """Return a call of each transport that stays open, with the header *given*."""
    log = await done(app, "GET", "/feeds/main/log", None, ADMIN.encode())
    end = json.loads(log.said[log.said.index("{") :])["end"]
    head = (await done(app, "GET", "/changes?limit=0", None, ADMIN.encode())).said.split('"head":')[
        1
    ]
    headers = {"authorization": given, "last-event-id": "0", "accept": "text/event-stream"}
    lines = {**headers, "accept": "application/x-ndjson"}
    password = given.rpartition(" ")[2]
    subscribe = {"action": "resume", "cursor": "now", "password": password}
    made = [
        Call(app, "GET", "/ops", "", headers, until=("event: live",)),
        Call(app, "GET", "/ops", "", lines, until=('"live"',)),
        Call(app, "GET", STREAM_NAME, "offset=-1&live=sse", headers, until=('"upToDate":true',)),
        Call(app, "GET", STREAM_NAME, "offset=now&live=long-poll", headers, until=("",)),
        Call(
            app, "GET", "/changes", f"since={head.split(',')[0]}&block=9999", headers, until=("",)
        ),
        Call(
            app,
            "GET",
            "/feeds/main/pages",
            f"after={end}&block=9999&size=4194304",
            headers,
            until=("",),
        ),
    ]
    if not given.startswith("Basic"):  # a WebSocket stays open after a changed password (P10.6)
        made.append(
            Call(app, "WEBSOCKET", "/ws", body=json.dumps(subscribe), until=("subscribed",))
        )
    return made


ENDS = ("revoked", "expired", "password", "token", "deleted")


@pytest.mark.parametrize("how", ENDS)
def test_every_transport_ends_with_its_credential(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer has what was posted after the end, however the credential ended."""
    later_ms = [0]
    monkeypatch.setattr(host_module, "now_ms", lambda: now_ms() + later_ms[0])

    async def play() -> None:
        async with (
            hosted(tmp_path / "feed.db", None, **SETTINGS) as (host, app),
            AsyncExitStack() as stack,
        ):
            await fill(host, app)
            calls = await opened(app, await credential_of(how, host))
            for each in calls:
                await (await stack.enter_async_context(each)).ended()
                each.until = ()
            if how in ("expired", "token"):
                later_ms[0] = 7_200_000
            await end_it(how, host, app)
            await asyncio.gather(*(each.ended() for each in calls if each.ends_itself))
            if how != "deleted":
                late = operation("pub", "toolate", "x")
                await done(app, "POST", "/feeds/main/ops", late, ADMIN.encode())
                await done(app, "POST", STREAM_NAME, ["toolate"], ADMIN.encode())
            await asyncio.gather(*(each.ended() for each in calls))
            assert [each for each in calls if "toolate" in each.said] == []
            refused = (400, 406), '"lost":true'  # such a call would not have been open
            assert [x for x in calls if x.status in refused[0] or refused[1] in x.said] == []

    asyncio.run(play())


READER = replace(ADMIN, id="c" * 12)


async def credential_of(how: str, host: Host) -> str:
    """Return the header of a new credential that will end."""
    if how == "password":
        return basic(PASSWORD)
    if how == "token":
        return f"Bearer {token([{'feed': 'main', 'roles': ['read']}])}"
    issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms)
    wanted = Key("", "", frozenset({Role.READ}), expires_ms=now_ms() + 3_600_000)
    await asyncio.to_thread(issuer.create, "main", READER, wanted)
    return f"Bearer {READER.encode()}"


async def end_it(how: str, host: Host, app: ServerApp) -> None:
    hashed = hash_password(LATER, salt=b"2" * 16, now_ms=0)
    if how == "revoked":
        await done(app, "POST", f"/feeds/main/keys/{READER.id}/revoke", {}, ADMIN.encode())
    elif how == "password":
        profile = replace(host.profiles.profile("main"), read_passwords=(hashed,))
        assert await asyncio.to_thread(host.profiles.save, "main", profile)
    elif how == "deleted":
        await done(app, "DELETE", "/feeds/main?confirm=main&force=true", None, ADMIN.encode())


async def answer(app: ServerApp, given: str, method: str, path: str, body: str = "") -> int:
    kind = "application/x-www-form-urlencoded" if "=" in body else "application/json"
    path, _, query = path.partition("?")
    headers = {"authorization": given, "content-type": kind}
    async with Call(app, method, path, query, headers, body) as call:
        await call.ended()
    return call.status


FULL, OF_PREFIX, DERIVED = (
    f"Bearer {key.encode()}"
    for key in (ADMIN, secret("a prefix of the host"), secret("a derived prefix"))
)
OWNER = f"Bearer {token([{'feed': 'main', 'roles': ['admin', 'consume', 'read']}])}"
WORKER = f"Bearer {token([{'feed': 'main', 'roles': ['consume']}])}"
LEASE, UP, KEY = '{"worker":"w"}', "up=true", {"roles": ["read"]}
TEAM, TEAM_Y = (json.dumps({**KEY, "feeds": [f"team-{each}"]}) for each in "xy")
# The credential, the request, and the status of its answer.
RULES = [
    *((OWNER, "POST", "/feeds/main/keys", json.dumps({**KEY, **more}), 400) for more in (
        *({"label": text} for text in ("\x9b31m", "\u202ex", "\u2028", "\x85", "\u061c")),
        *({"expires": text} for text in ("0", "-0", "0s", "1ns", "999us")),
    )),
    (OWNER, "POST", "/feeds/main/keys", json.dumps({**KEY, "label": "ä", "expires": "1m"}), 201),
    (WORKER, "POST", "/feeds/main/consumers/mine/lease", LEASE, 403),
    (WORKER, "POST", "/feeds/main/consumers/own/lease", LEASE, 200),
    (OWNER, "POST", "/feeds/main/consumers/mine/lease", LEASE, 200),
    (OWNER, "PUT", "/health", UP, 403),
    (OF_PREFIX, "PUT", "/health", UP, 403),
    (FULL, "PUT", "/health", UP, 200),
    (OF_PREFIX, "POST", "/feeds/team-x/keys?host=true", TEAM_Y, 201),
    (OF_PREFIX, "POST", "/feeds/team-x/keys?host=true", TEAM, 400),  # the limit is 2 keys here
    (DERIVED, "POST", "/feeds/team-x/keys?host=true", TEAM, 400),  # together with its creator
    (FULL, "POST", "/feeds/team-x/keys?host=true", TEAM, 201),
    *((basic("a guess"), "GET", f"/feeds/{feed}/objects", "", 401) for feed in ("other", "team-x")),
    (basic("a guess"), "GET", "/feeds/other/objects", "", 429),  # the third one at the host
    (basic("a guess"), "GET", "/feeds/main/objects", "", 401),
    (basic(LATER), "GET", "/feeds/main", "", 200),  # the ingest password is no guess here
    (basic("a guess"), "GET", "/feeds/main/objects", "", 401),
    (basic("a guess"), "GET", "/feeds/main/objects", "", 429),
]  # fmt: skip


def test_what_a_credential_may_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule as a request, in this order."""
    monkeypatch.setattr(limits, "PREFIX_KEYS_MAX", 2)
    monkeypatch.setattr(limits, "MISSES_MAX", 2)
    monkeypatch.setattr(limits, "MISSES_MS", 10**9)

    async def play() -> list[int]:
        async with hosted(tmp_path / "feed.db", None, **SETTINGS) as (host, app):
            await fill(host, app)
            hashed = hash_password(LATER, salt=b"2" * 16, now_ms=0)
            profile = replace(host.profiles.profile(HOST), read_passwords=(hashed,))
            assert await asyncio.to_thread(host.profiles.save, HOST, profile)
            profile = replace(host.profiles.profile("main"), ingest_passwords=(hashed,))
            assert await asyncio.to_thread(host.profiles.save, "main", profile)
            return [await answer(app, *request) for *request, _ in RULES]

    found = asyncio.run(play())
    wrong = [
        (rule, status) for rule, status in zip(RULES, found, strict=True) if rule[-1] != status
    ]
    assert wrong == []


def test_two_credentials_are_refused() -> None:
    """A proxy and the server could use different ones."""
    pairs = [(b"authorization", b"Basic eDp5")] * 2
    with pytest.raises(RepeatedHeader):
        HostCheck().check({"method": "GET", "headers": [(b"host", b"localhost"), *pairs]})
