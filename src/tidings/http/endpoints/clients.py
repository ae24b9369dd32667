"""The route that lists the connected clients of a feed (PROTOCOL 9.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from tidings.core import limits
from tidings.core.auth.guard import READ_ALL
from tidings.core.maintenance.clients import TRANSPORTS
from tidings.core.model.timestamps import from_ms_if_set
from tidings.http import wire
from tidings.http.endpoints.consumers import FilterFields, filter_document
from tidings.http.wire import Call, Example, Fields, Time

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.maintenance.clients import Client, ClientReporter


class ClientReport(Fields, name=""):
    """A client, with the number of pages between it and the head of the feed."""

    transport: Annotated[str, wire.one_of(*TRANSPORTS)]
    since: Annotated[Time | None, Example(wire.EXAMPLE_TIME)]
    principal: Annotated[str | None, Example("3k2m9c0q8xw1")]
    filter: FilterFields
    page: Annotated[int | None, Example(40)]
    lag_pages: Annotated[int | None, Example(2)]
    user_agent: Annotated[str | None, Example("tidings-client/1.0")]

    @classmethod
    def of(cls, client: Client, head: int) -> Self:
        return cls.copy_of(
            client,
            since=from_ms_if_set(client.since_ms),
            principal=client.key or None,
            filter=FilterFields(**filter_document(client.filter)),
            lag_pages=None if client.page is None else max(0, head - client.page),
            user_agent=client.user_agent or None,
        )


class ClientList(Fields, name="Clients"):
    total: Annotated[int, Example(1)]
    head: Annotated[int, Example(42)]
    clients: Annotated[list[ClientReport], wire.most(limits.CLIENTS_LISTED)]


@dataclass(frozen=True)
class FeedClients(wire.Routes, function="browse"):
    """The endpoint of the connected clients of a feed."""

    guard: Guard
    reporter: ClientReporter

    @wire.get("/feeds/{feed}/clients", READ_ALL, "9.11")
    def list_clients(self, call: Call) -> ClientList:
        """Return the connected clients."""
        found = self.reporter.report(call.feed)
        clients = [ClientReport.of(each, found.head) for each in found.clients]
        return ClientList(total=found.total, head=found.head, clients=clients)
