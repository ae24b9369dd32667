"""The requests as a table: actors, and for each route of the blueprint a request that would
succeed.

The expectation of each cell follows from the route's need alone; so a function that asks for
another role than its route says, or lets a bounded key see the whole, is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.functions.cloud import basic
from tidings.core.auth.guard import Bounded, Need, Role, permits
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.http.endpoints.consumers import ConsumerRouter
from tidings.http.routes import HTTP_ROUTES
from tidings.http.wire import HttpRoute

VIDEOS = Filter(frozenset({"video", "change"}))
ANNS = Filter(parents=frozenset({"user/ann"}))
READER, PRODUCER = "the read password", "the ingest password"


@dataclass(frozen=True)
class Actor:
    """*password*, or a key with *roles* within *bound*; *ended*: it is good for nothing.

    *of_host*: the key is one of the host, for the feeds with the prefix *feeds*.
    """

    name: str
    password: str = ""
    roles: frozenset[Role] = frozenset()
    bound: Filter = EVERYTHING
    ended: str = ""
    of_host: bool = False
    feeds: tuple[str, ...] = ()

    @property
    def has_key(self) -> bool:
        return bool(self.roles)


def _key(name: str, *roles: Role, **more: Any) -> Actor:
    return Actor(name, roles=frozenset(roles), **more)


ACTORS = (
    Actor("nobody"),
    Actor("a wrong password", "no such password"),
    Actor("the read password", READER),
    Actor("the ingest password", PRODUCER),
    _key("a read key", Role.READ),
    _key("an ingest key", Role.INGEST),
    _key("a worker's key", Role.CONSUME),
    _key("an eraser's key", Role.ERASE),
    _key("an admin key", Role.ADMIN),
    _key("a key with all roles", *Role),
    _key("a key bounded by type", Role.READ, Role.INGEST, bound=VIDEOS),
    _key("a key bounded by parent", Role.READ, Role.INGEST, bound=ANNS),
    _key("a revoked key", *Role, ended="revoked"),
    _key("an expired key", *Role, ended="expired"),
    _key("a key of another feed", *Role, ended="foreign"),
    _key("a key with another secret", *Role, ended="wrong"),
    _key("a read key of the host", Role.READ, of_host=True),
    _key("an admin key of the host", Role.ADMIN, Role.READ, of_host=True, feeds=("ma",)),
    _key("a key of the host for other feeds", *Role, of_host=True, feeds=("other",)),
)


def refused(actor: Actor, need: Need) -> int:
    """Return 401 or 403 if *actor* may not make a request with this *need*, else 0."""
    if need.role is None:
        return 0
    if not actor.has_key:
        whose = {READER: {Role.READ}, PRODUCER: {*Role} - {Role.READ}}
        return 0 if need.role in whose.get(actor.password, ()) else 401
    if actor.ended:
        return 401
    if not permits(actor.feeds, "main"):
        return 403
    by_admin = need.role in (Role.CONSUME, Role.ERASE) and Role.ADMIN in actor.roles
    if need.role not in actor.roles and not by_admin:
        return 403
    if need.bounded is Bounded.REFUSED and actor.bound != EVERYTHING:
        return 403
    return 403 if need.bounded is Bounded.BY_TYPE and actor.bound.parents else 0


@dataclass(frozen=True)
class RouteRequest:
    """A request by *route* that an admitted caller is answered with *status*."""

    route: HttpRoute
    status: int
    need: Need
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    kind: str = "application/json"
    body: str = ""
    is_of_host: bool = False  # the credential is one of the host

    @property
    def path(self) -> str:
        path = "/nowhere" if self.route.path == "$default" else self.route.path
        for name, value in self.parameters.items():
            path = path.replace(f"{{{name}}}", value)
        return path

    @property
    def method(self) -> str:
        return "POST" if self.route.method == "ANY" else self.route.method

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


OPERATION = '{"event":"insert","type":"video","id":"x","parents":["user/ann"]}'
ITEM = (
    '{"changeKind":{"resource":"video","subResources":["title"]},"changedResourceId":"x",'
    '"parents":["user/ann"]}'
)
FORM, YAML = "application/x-www-form-urlencoded", "application/yaml"
NDJSON = "application/x-ndjson"
# By the end of a route's path, and its method: the status for an admitted caller, and the body.
REQUESTS: dict[str, dict[str, Any]] = {
    "POST /": {"status": 204, "body": OPERATION},
    "POST /ops": {"status": 204, "body": OPERATION},
    "GET /": {"status": 200},
    "GET /ops": {"status": 200},
    "GET /status": {"status": 200},
    "GET /openapi.json": {"status": 200},
    "GET /asyncapi.json": {"status": 200},
    "GET /schemas/{format}": {"status": 200, "parameters": {"format": "tidings"}},
    "GET /changes": {"status": 200},
    "GET /changes/{id}": {"status": 404, "parameters": {"id": "99999999"}},
    "POST /changes": {"status": 200, "body": '{"data":1,"tags":["user/ann"]}'},
    "GET /changefeeds": {"status": 200},
    "POST /changefeeds": {"status": 204, "body": ITEM},
    "GET /changefeeds/stats": {"status": 200},
    "GET /objects": {"status": 200},
    "GET /sums": {"status": 200},
    "GET /log": {"status": 200},
    "GET /consumers": {"status": 200},
    "PUT /consumers/{name}": {"status": 400, "body": '{"unknown":1}'},
    "GET /consumers/{name}": {"status": 404},
    "DELETE /consumers/{name}": {"status": 404, "query": "why=w&by=b"},
    "GET /consumers/{name}/parked": {"status": 404},
    "GET /consumers/{name}/notes": {"status": 200},
    "GET /access": {"status": 200},
    "GET /clients": {"status": 200},
    "GET /history": {"status": 501},
    "GET /keys": {"status": 200},
    "POST /keys": {"status": 400, "body": '{"unknown":1}'},
    "POST /keys/{id}/revoke": {"status": 404, "parameters": {"id": "000000000000"}},
    "GET /hooks": {"status": 501},
    "PUT /hooks/{name}": {"status": 501, "body": '{"url":"https://a.example"}'},
    "GET /hooks/{name}": {"status": 501},
    "DELETE /hooks/{name}": {"status": 501, "query": "why=w&by=b"},
    "POST /hooks/{name}/rotate": {"status": 501, "body": "{}"},
    "GET /hooks/{name}/attempts": {"status": 501},
    "GET /pages": {"status": 200},
    "GET /rows": {"status": 200, "query": "bucket=0"},
    "POST /corrections": {"status": 200, "query": "through=0", "kind": NDJSON},
    "POST /corrections/rows": {"status": 200, "body": '{"keys":["video/x"]}'},
    "POST /erasures": {"status": 202, "body": '{"type":"video","id":"x","reason":"r"}'},
    "GET /erasures": {"status": 200},
    "GET /erasures/{id}": {"status": 404, "parameters": {"id": "0" * 24}},
    "GET /feeds": {"status": 200, "is_of_host": True},
    "PUT /feeds/{feed}": {"status": 400, "body": '{"unknown":1}', "is_of_host": True},
    "GET /feeds/{feed}": {"status": 200},
    "DELETE /feeds/{feed}": {"status": 400, "query": "confirm=other", "is_of_host": True},
    "GET /relays": {"status": 200},
    "GET /relay": {"status": 200},
    "PUT /relay/password": {"status": 404, "body": '{"password":"a new one"}'},
    "POST /relay/{action}": {"status": 404, "parameters": {"action": "pause"}},
    "GET /health": {"status": 200},
    "PUT /health": {"status": 200, "kind": FORM, "body": "up=true", "is_of_host": True},
    "POST /health": {"status": 200, "kind": FORM, "body": "up=true", "is_of_host": True},
    "GET /config": {"status": 200},
    "PUT /config": {"status": 200, "kind": YAML, "body": "{}"},
    "POST /config": {"status": 200, "kind": YAML, "body": "{}"},
    "GET /cluster": {"status": 200},
    "GET /cluster/members": {"status": 200},
    "PUT /cluster/members": {"status": 501},
    "POST /cluster/members": {"status": 501},
    "GET /cluster/members/{id}": {"status": 200, "parameters": {"id": "1"}},
    "DELETE /cluster/members/{id}": {"status": 501, "parameters": {"id": "1"}},
    "GET /diagnostics": {"status": 200},
    "GET /diagnostics/{part}": {"status": 200, "parameters": {"part": "id"}},
    "GET /diagnostics/raft/{part}": {"status": 200, "parameters": {"part": "state"}},
    "ANY /": {"status": 404},
}
_ACT = "/feeds/{feed}/consumers/{name}/{action}"
_ACTION_BODIES = {
    "lease": '{"worker":"w"}',
    "ack": '{"fence":1}',
    "release": '{"fence":1}',
    "fail": '{"fence":1,"error":"e"}',
    "mark": '{"why":"w","by":"b","position":"now"}',
    "retry": '{"why":"w","by":"b","id":"all"}',
    "drop": '{"why":"w","by":"b","id":"all"}',
}


def requests() -> list[RouteRequest]:
    """Return one request for each route, and for each action of a consumer."""
    made = []
    for route in HTTP_ROUTES:
        if route.path == _ACT:
            declared = ConsumerRouter.declared.values()
            made += [_action(route, each.action, each.need) for each in declared if each.action]
        else:
            below = route.path.removeprefix("/feeds/{feed}") or route.path
            given = REQUESTS[f"{route.method} {'/' if below == '$default' else below}"]
            made.append(RouteRequest(route, need=route.need, **given))
    return [_placed(each) for each in made]


def _action(route: HttpRoute, name: str, need: Need) -> RouteRequest:
    body = _ACTION_BODIES.get(name, '{"why":"w","by":"b"}')
    return RouteRequest(route, 404, need, {"action": name}, body=body)


def _placed(asked: RouteRequest) -> RouteRequest:
    standing = {"feed": "main", "name": "nobody"}
    known = {name: value for name, value in standing.items() if f"{{{name}}}" in asked.route.path}
    return replace(asked, parameters={**known, **asked.parameters})


def headers(secret: str, *, bearer: bool) -> dict[str, str]:
    """Return the headers of a client with *secret*; no headers for an empty one."""
    if not secret:
        return {}
    if bearer:
        return {"authorization": f"Bearer {secret}"}
    return basic(secret, "anybody")
