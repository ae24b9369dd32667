"""Which function answers what. Data only, read as a part of `blueprint`."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PATH = "$default"


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """
    *path* `$default` takes whatever no other route does.

    *waits*: its function streams, but this answer is whole and comes within an API's time.
    """

    method: str
    path: str
    function: str
    waits: bool = False

    @property
    def key(self) -> str:
        """As API Gateway names it."""
        return self.path if self.path == DEFAULT_PATH else f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class SocketRoute:
    key: str
    function: str


HTTP_ROUTES = (
    HttpRoute("POST", "/", "ingest"),
    HttpRoute("POST", "/ops", "ingest"),
    HttpRoute("POST", "/feeds/{feed}/ops", "ingest"),
    HttpRoute("GET", "/", "stream"),
    HttpRoute("GET", "/ops", "stream"),
    HttpRoute("GET", "/feeds/{feed}/ops", "stream"),
    HttpRoute("GET", "/status", "report"),
    HttpRoute("GET", "/feeds/{feed}/status", "report"),
    HttpRoute("GET", "/changes", "stream", waits=True),
    HttpRoute("GET", "/changes/{id}", "stream", waits=True),
    HttpRoute("POST", "/changes", "propose"),
    HttpRoute("GET", "/feeds/{feed}/changes", "stream", waits=True),
    HttpRoute("GET", "/feeds/{feed}/changes/{id}", "stream", waits=True),
    HttpRoute("POST", "/feeds/{feed}/changes", "propose"),
    HttpRoute("GET", "/changefeeds", "browse"),
    HttpRoute("POST", "/changefeeds", "publish"),
    HttpRoute("GET", "/changefeeds/stats", "browse"),
    HttpRoute("GET", "/feeds/{feed}/changefeeds", "browse"),
    HttpRoute("POST", "/feeds/{feed}/changefeeds", "publish"),
    HttpRoute("GET", "/feeds/{feed}/changefeeds/stats", "browse"),
    HttpRoute("GET", "/feeds/{feed}/objects", "browse"),
    HttpRoute("GET", "/feeds/{feed}/log", "consume"),
    HttpRoute("GET", "/feeds/{feed}/consumers", "consume"),
    HttpRoute("PUT", "/feeds/{feed}/consumers/{name}", "consume"),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}", "consume"),
    HttpRoute("DELETE", "/feeds/{feed}/consumers/{name}", "consume"),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}/parked", "consume"),
    HttpRoute("GET", "/feeds/{feed}/consumers/{name}/notes", "consume"),
    HttpRoute("POST", "/feeds/{feed}/consumers/{name}/{action}", "consume"),
    HttpRoute("GET", "/feeds/{feed}/pages", "stream", waits=True),
    HttpRoute("GET", "/feeds/{feed}/rows", "stream", waits=True),
    HttpRoute("GET", "/relays", "supervise"),
    HttpRoute("GET", "/feeds/{feed}/relay", "supervise"),
    HttpRoute("PUT", "/feeds/{feed}/relay/password", "supervise"),
    HttpRoute("POST", "/feeds/{feed}/relay/{action}", "supervise"),
    HttpRoute("GET", "/health", "administer"),
    HttpRoute("PUT", "/health", "administer"),
    HttpRoute("POST", "/health", "administer"),
    HttpRoute("GET", "/config", "administer"),
    HttpRoute("PUT", "/config", "administer"),
    HttpRoute("POST", "/config", "administer"),
    HttpRoute("GET", "/feeds/{feed}/config", "administer"),
    HttpRoute("PUT", "/feeds/{feed}/config", "administer"),
    HttpRoute("POST", "/feeds/{feed}/config", "administer"),
    HttpRoute("GET", "/cluster", "administer"),
    HttpRoute("GET", "/cluster/members", "administer"),
    HttpRoute("PUT", "/cluster/members", "administer"),
    HttpRoute("POST", "/cluster/members", "administer"),
    HttpRoute("GET", "/cluster/members/{id}", "administer"),
    HttpRoute("DELETE", "/cluster/members/{id}", "administer"),
    HttpRoute("GET", "/diagnostics", "administer"),
    HttpRoute("GET", "/diagnostics/{part}", "administer"),
    HttpRoute("GET", "/diagnostics/raft/{part}", "administer"),
    HttpRoute("ANY", DEFAULT_PATH, "ingest"),  # only to say what is wrong with the request
)

SOCKET_ROUTES = (
    SocketRoute("$connect", "connect"),
    SocketRoute("$disconnect", "disconnect"),
    SocketRoute("$default", "receive"),
)
