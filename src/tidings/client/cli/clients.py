"""`tidings clients`: show the clients that are connected to a feed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Access, access_options, json_option
from tidings.client.cli.render import answer, show_list

_COLUMNS = ("transport", "since", "principal", "page", "lag_pages", "filter", "user_agent")


@click.command(epilog=EXIT_CODES)
@json_option
@access_options
def clients(as_json: bool, feed: Access) -> None:
    """Show the clients that are connected to a feed: since when, with which key and lag.

    At most 200 clients are listed; the first line has the number of all. The page of a client is
    the last one that was sent. A stage lists only WebSockets.

    \b
    Examples:
      tidings clients
      tidings clients --feed videos --json | jq .total
    """
    found = feed.ask("GET", "clients")
    if as_json:
        answer(found, "", as_json=True)
        return
    click.echo(f"{found['total']} connected, the feed is at page {found['head']}")
    if found["clients"]:
        show_list(found["clients"], _COLUMNS, as_json=False, empty="", row=_row)


def _row(client: Mapping[str, Any]) -> dict[str, Any]:
    wanted = client["filter"]
    return {**client, "filter": json.dumps(wanted, separators=(",", ":")) if wanted else None}
