"""`tidings clients`: show the clients that are connected to a feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.render import compact, rows
from tidings.client.cli.resources import command_of
from tidings.http.endpoints.clients import FeedClients

if TYPE_CHECKING:
    from tidings.client.feed_api import Answer

_COLUMNS = ("transport", "since", "principal", "page", "lag_pages", "filter", "user_agent")


def _shown(found: Answer) -> Any:
    total = f"{found['total']} connected, the feed is at page {found['head']}"
    if not found["clients"]:
        return total
    click.echo(total)
    shown = [
        {**each, "filter": each["filter"] and compact(each["filter"])} for each in found["clients"]
    ]
    return rows(shown, _COLUMNS, empty="")


clients = command_of(
    "clients",
    FeedClients.list_clients,
    """
    Show the clients that are connected to a feed: since when, with which key and lag.

    At most 200 clients are listed; the first line has the number of all. The page of a client is
    the last one that was sent. A stage lists only WebSockets.
    """,
    "",
    "--feed videos --json | jq .total",
    shows=_shown,
)
