"""
Which function answers what, and who may ask it. Data only, read as a part of `config.deployment`.

Functions that answer several routes look up here what each needs; the others say it themselves,
and a test walks this table to see that it is so.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.auth.permissions import (
    ANYBODY,
    CONSUMES,
    COPIES,
    POSTS,
    PUBLISHES,
    READS,
    READS_ALL,
    STEERS,
    Need,
)
from tidings.core.websocket.session import Act

DEFAULT_PATH = "$default"
STREAM = "/feeds/{feed}/v1/stream/{name}"
HOOKS, KEYS, SUMS = "/feeds/{feed}/hooks", "/feeds/{feed}/keys", "/feeds/{feed}/sums"


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """
    *path* `$default` takes whatever no other route does. *need* is what it asks for; where an
    action in the path decides, `CONSUMER_ACTIONS` says more.
    """

    method: str
    path: str
    function: str
    need: Need

    @property
    def key(self) -> str:
        """As API Gateway names it."""
        return self.path if self.path == DEFAULT_PATH else f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """
    *key* `$default` takes whatever no other route does; any other one without a dollar is an
    action. Without a *function* the gateway takes the message, and nobody answers.
    """

    key: str
    function: str = ""


HTTP_ROUTES = (
    HttpRoute("POST", "/", "ingest", POSTS),
    HttpRoute("POST", "/ops", "ingest", POSTS),
    HttpRoute("POST", "/feeds/{feed}/ops", "ingest", POSTS),
    HttpRoute("GET", "/", "stream", READS),
    HttpRoute("GET", "/ops", "stream", READS),
    HttpRoute("GET", "/feeds/{feed}/ops", "stream", READS),
    HttpRoute("GET", "/status", "report", ANYBODY),
    HttpRoute("GET", "/feeds/{feed}/status", "report", ANYBODY),
    HttpRoute("GET", "/openapi.json", "report", ANYBODY),
    HttpRoute("GET", "/schemas/{format}", "report", ANYBODY),
    HttpRoute("GET", "/changes", "list", READS),
    HttpRoute("GET", "/changes/{id}", "list", READS),
    HttpRoute("POST", "/changes", "propose", POSTS),
    HttpRoute("GET", "/feeds/{feed}/changes", "list", READS),
    HttpRoute("GET", "/feeds/{feed}/changes/{id}", "list", READS),
    HttpRoute("POST", "/feeds/{feed}/changes", "propose", POSTS),
    HttpRoute("GET", "/changefeeds", "browse", ANYBODY),
    HttpRoute("POST", "/changefeeds", "publish", PUBLISHES),
    HttpRoute("GET", "/changefeeds/stats", "browse", READS_ALL),
    HttpRoute("GET", "/feeds/{feed}/changefeeds", "browse", ANYBODY),
    HttpRoute("POST", "/feeds/{feed}/changefeeds", "publish", PUBLISHES),
    HttpRoute("GET", "/feeds/{feed}/changefeeds/stats", "browse", READS_ALL),
    HttpRoute("GET", "/feeds/{feed}/objects", "browse", READS),
    HttpRoute("GET", SUMS, "browse", COPIES),
    HttpRoute("GET", "/feeds/{feed}/log", "consume", READS_ALL),
    HttpRoute("GET", "/feeds/{feed}/consumers", "consume", READS_ALL),
    HttpRoute("PUT", "/feeds/{feed}/consumers/{name}", "consume", STEERS),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}", "consume", READS_ALL),
    HttpRoute("DELETE", "/feeds/{feed}/consumers/{name}", "consume", STEERS),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}/parked", "consume", READS_ALL),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}/notes", "consume", READS_ALL),
    HttpRoute("POST", "/feeds/{feed}/consumers/{name}/{action}", "consume", STEERS),
    HttpRoute("GET", HOOKS, "consume", STEERS),
    HttpRoute("PUT", HOOKS + "/{name}", "consume", STEERS),
    HttpRoute("GET", HOOKS + "/{name}", "consume", STEERS),
    HttpRoute("DELETE", HOOKS + "/{name}", "consume", STEERS),
    HttpRoute("POST", HOOKS + "/{name}/rotate", "consume", STEERS),
    HttpRoute("GET", KEYS, "consume", STEERS),
    HttpRoute("POST", KEYS + "/{id}/revoke", "consume", STEERS),
    HttpRoute("GET", "/feeds/{feed}/pages", "list", COPIES),
    HttpRoute("GET", "/feeds/{feed}/rows", "list", COPIES),
    HttpRoute("POST", "/feeds/{feed}/corrections", "amend", STEERS),
    HttpRoute("POST", "/feeds/{feed}/corrections/rows", "amend", READS_ALL),
    HttpRoute("GET", "/relays", "supervise", READS_ALL),
    HttpRoute("GET", "/feeds/{feed}/relay", "supervise", READS_ALL),
    HttpRoute("PUT", "/feeds/{feed}/relay/password", "supervise", STEERS),
    HttpRoute("POST", "/feeds/{feed}/relay/{action}", "supervise", STEERS),
    HttpRoute("GET", "/health", "administer", ANYBODY),
    HttpRoute("PUT", "/health", "administer", STEERS),
    HttpRoute("POST", "/health", "administer", STEERS),
    HttpRoute("GET", "/config", "administer", STEERS),
    HttpRoute("PUT", "/config", "administer", STEERS),
    HttpRoute("POST", "/config", "administer", STEERS),
    HttpRoute("GET", "/feeds/{feed}/config", "administer", STEERS),
    HttpRoute("PUT", "/feeds/{feed}/config", "administer", STEERS),
    HttpRoute("POST", "/feeds/{feed}/config", "administer", STEERS),
    HttpRoute("GET", "/cluster", "administer", READS_ALL),
    HttpRoute("GET", "/cluster/members", "administer", READS_ALL),
    HttpRoute("PUT", "/cluster/members", "administer", STEERS),
    HttpRoute("POST", "/cluster/members", "administer", STEERS),
    HttpRoute("GET", "/cluster/members/{id}", "administer", READS_ALL),
    HttpRoute("DELETE", "/cluster/members/{id}", "administer", STEERS),
    HttpRoute("GET", "/diagnostics", "administer", READS_ALL),
    HttpRoute("GET", "/diagnostics/{part}", "administer", READS_ALL),
    HttpRoute("GET", "/diagnostics/raft/{part}", "administer", READS_ALL),
    HttpRoute("ANY", DEFAULT_PATH, "ingest", ANYBODY),  # only to say what is wrong with the request
)

# Of the server alone: a stage has no functions for them, and refuses the path.
SERVER_ROUTES = tuple(
    HttpRoute(method, STREAM, "durable", need)
    for need, methods in ((READS, ("GET", "HEAD")), (POSTS, ("PUT", "POST", "DELETE")))
    for method in methods
)

SOCKET_ROUTES = (
    SocketRoute("$connect", "connect"),
    SocketRoute("$disconnect", "disconnect"),
    SocketRoute(DEFAULT_PATH, "receive"),
    SocketRoute(Act.KEEP_ALIVE.value),
)

# By the key of each route.
NEEDS = {route.key: route.need for route in HTTP_ROUTES}

# `POST /feeds/{feed}/consumers/{name}/{action}`: what workers say, and what operators do.
CONSUMER_ACTIONS = {
    **dict.fromkeys(("lease", "ack", "fail", "release"), CONSUMES),
    **dict.fromkeys(("pause", "resume", "mark", "step", "park", "retry", "drop"), STEERS),
}
