"""The table of routes, with the function and the permission of each route.

`aws.config.deployment` also exports the table. The module imports all endpoints, so a Lambda
function loads it only for a request that no route matches. Functions of routes that are served
elsewhere declare the permission themselves, and a test compares it with this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.auth.guard import INGEST, PUBLIC, READ
from tidings.core.websocket.session import Act
from tidings.http.endpoints.admin import Administration
from tidings.http.endpoints.browse import FeedBrowser
from tidings.http.endpoints.clients import FeedClients
from tidings.http.endpoints.consumers import ConsumerRouter
from tidings.http.endpoints.corrections import Corrections
from tidings.http.endpoints.erasures import ErasureRouter
from tidings.http.endpoints.feeds import FeedRouter
from tidings.http.endpoints.hooks import WebhookRouter
from tidings.http.endpoints.keys import KeyRouter
from tidings.http.endpoints.replication import ReplicaRouter
from tidings.http.endpoints.reports import FeedReports
from tidings.http.log_routes import LOG_ROUTES
from tidings.http.wire import DEFAULT_PATH, HttpRoute, Routes

STREAM = "/feeds/{feed}/v1/stream/{name}"


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """One WebSocket route.

    The *key* `$default` matches every message that no other route matches. A key without a dollar
    sign is an action, and matches the messages with this action. Without a *function*, the gateway
    accepts the message and no response is sent.
    """

    key: str
    function: str = ""


# The classes with the declared routes.
DECLARED: tuple[type[Routes], ...] = (
    *LOG_ROUTES,
    FeedBrowser,
    FeedClients,
    ConsumerRouter,
    WebhookRouter,
    KeyRouter,
    FeedRouter,
    ErasureRouter,
    Corrections,
    ReplicaRouter,
    FeedReports,
    Administration,
)

HTTP_ROUTES = (
    *(route for each in DECLARED for route in each.http_routes()),
    HttpRoute("ANY", DEFAULT_PATH, "ingest", PUBLIC),  # requests that no other route matches
)

# Only a server has these routes. A stage has no functions for them and rejects the paths.
SERVER_ROUTES = tuple(
    HttpRoute(method, STREAM, "durable", need)
    for need, methods in ((READ, ("GET", "HEAD")), (INGEST, ("PUT", "POST", "DELETE")))
    for method in methods
)

SOCKET_ROUTES = (
    SocketRoute("$connect", "connect"),
    SocketRoute("$disconnect", "disconnect"),
    SocketRoute(DEFAULT_PATH, "receive"),
    SocketRoute(Act.KEEP_ALIVE.value),
)
