"""Serve `GET /feeds/{feed}/clients`: the connected clients of a feed (PROTOCOL 9.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core.model.timestamps import from_ms
from tidings.http.answers import json_answer
from tidings.http.endpoints.consumers import filter_document
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.maintenance.clients import Client, ClientReporter
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class FeedClients:
    """The endpoint of the connected clients of a feed."""

    guard: Guard
    feeds: FeedNames
    reporter: ClientReporter

    def __call__(self, request: Request) -> Answer:
        feed = self.feeds.key(request.feed)
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        found = self.reporter.report(feed)
        clients = [client_document(each, found.head) for each in found.clients]
        return json_answer(200, {"total": found.total, "head": found.head, "clients": clients})


def client_document(client: Client, head: int) -> dict[str, Any]:
    """Return *client* with the number of pages between it and the *head* of the feed."""
    return {
        "transport": client.transport,
        "since": from_ms(client.since_ms) if client.since_ms else None,
        "principal": client.key or None,
        "filter": filter_document(client.filter),
        "page": client.page,
        "lag_pages": None if client.page is None else max(0, head - client.page),
        "user_agent": client.user_agent or None,
    }
