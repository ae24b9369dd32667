"""The clients that are connected to a feed, as operators see them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.catchup.catchup import Progress
from tidings.core.model.feeds import follower_of, one_lane
from tidings.core.model.filters import EVERYTHING, Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidings.core.counters import Counters
    from tidings.core.effects import Clock
    from tidings.core.log.stores import Checkpoints, LogStore
    from tidings.core.websocket.connections import Connection, ConnectionStore, SubscriptionStore

SSE, NDJSON, WEBSOCKET, LONG_POLL = "sse", "ndjson", "websocket", "long-poll"
TRANSPORTS = (SSE, NDJSON, WEBSOCKET, LONG_POLL)
_UNPRINTABLE = re.compile(r"[^ -~]")
_PAGE = 1_000  # connections that are read at once from memory


@dataclass(frozen=True, slots=True)
class Client:
    """A connected client, without its secret.

    *since_ms* is the time at which it connected, or 0 if unknown. It was sent everything up to
    *page*, or None if unknown. *key* is the id of its key, "" for another credential.
    """

    transport: str
    since_ms: int = 0
    filter: Filter = EVERYTHING
    page: int | None = None
    key: str = ""
    user_agent: str = ""


@dataclass(frozen=True, slots=True)
class ConnectedClients:
    """The number of all clients of a feed, some of them, and the last page of the feed."""

    total: int
    clients: Sequence[Client]
    head: int


class ClientReporter(Protocol):
    """A reporter of the clients of a feed."""

    def report(self, feed: str) -> ConnectedClients:
        """Return the clients of *feed*, at most `limits.CLIENTS_LISTED` of them."""


def user_agent_of(headers: Mapping[str, str]) -> str:
    """Return the name of the program that sent *headers*, shortened and without odd characters."""
    return _UNPRINTABLE.sub("?", headers.get("user-agent", ""))[: limits.USER_AGENT_CHARS]


class OpenRequests:
    """The requests of this process that send events or wait for them.

    The event loop adds and removes them. Any thread may call `clients`.
    """

    def __init__(self) -> None:
        self._open: dict[object, tuple[str, Callable[[], Client]]] = {}

    @contextmanager
    def connected(self, feed: str, describe: Callable[[], Client]) -> Iterator[None]:
        """Count a client of *feed* inside the context; *describe* returns its description now."""
        token = object()
        self._open[token] = feed, describe
        try:
            yield
        finally:
            self._open.pop(token, None)

    def clients(self, feed: str) -> list[Client]:
        return [describe() for of, describe in [*self._open.values()] if of == feed]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClients:
    """The reporter of a host that serves all clients of its feeds from one process.

    *user_agent* returns the user agent of a connection by its id.
    """

    requests: OpenRequests
    connections: ConnectionStore
    checkpoints: Checkpoints
    log: LogStore
    user_agent: Callable[[str], str]

    def report(self, feed: str) -> ConnectedClients:
        pushed = self.checkpoints.checkpoints(feed).get(follower_of(0), 0)
        clients = [
            *self.requests.clients(feed),
            *(self._describe(each, pushed) for each in self._connections(feed)),
        ]
        clients.sort(key=lambda client: client.since_ms)
        head = self.log.head(feed)
        return ConnectedClients(len(clients), clients[: limits.CLIENTS_LISTED], head)

    def _connections(self, feed: str) -> Iterator[Connection]:
        page = self.connections.page("", _PAGE)
        yield from (each for each in page.connections if each.feed == feed)
        while page.resume_at:
            page = self.connections.page(page.resume_at, _PAGE)
            yield from (each for each in page.connections if each.feed == feed)

    def _describe(self, connection: Connection, pushed: int) -> Client:
        progress = connection.progress
        page = Progress.decode(progress).page if progress else max(connection.since, pushed)
        return Client(
            WEBSOCKET,
            connection.opened_ms,
            connection.filter,
            page,
            connection.admission.key,
            self.user_agent(connection.id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedClients:
    """The reporter of a host with many processes, which shows live subscriptions of WebSockets.

    The total also counts event streams and WebSockets that catch up, and may be a minute old.
    *lanes* returns the number of lanes of push of a feed.
    """

    subscriptions: SubscriptionStore
    checkpoints: Checkpoints
    counters: Counters
    log: LogStore
    clock: Clock
    lanes: Callable[[str], int] = one_lane

    def report(self, feed: str) -> ConnectedClients:
        from tidings.core.websocket.connections import storage_key  # unused by event streams

        checkpoints = self.checkpoints.checkpoints(feed)
        clients: list[Client] = []
        for lane in range(self.lanes(feed)):
            pushed, left = (
                checkpoints.get(follower_of(lane), 0),
                limits.CLIENTS_LISTED - len(clients),
            )
            if left > 0:
                found = self.subscriptions.some(storage_key(feed, lane), left)
                clients += [
                    Client(
                        WEBSOCKET,
                        filter=each.filter,
                        page=max(each.since, pushed),
                        key=each.admission.key,
                    )
                    for each in found
                ]
        total = self.counters.totals(feed, now_ms=self.clock()).clients
        return ConnectedClients(max(total, len(clients)), clients, self.log.head(feed))
