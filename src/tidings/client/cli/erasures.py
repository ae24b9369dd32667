"""`tidings erase` and `tidings erasures`: erase the data of an object, and show how far it is."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from tidings.client.cli.render import cell, labelled, minute, rows, show, table
from tidings.client.cli.resources import Option, Resource, command_of, repeated
from tidings.http.endpoints.erasures import ErasureRouter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from tidings.client.feed_api import Answer

_COLUMNS = ("id", "state", "requested", "object")
_FIELDS = ("id", "object", "state", "reason", "by", "requested_at", "erased_at", "until", "before")
_LOCATIONS = ("location", "status", "until", "note")


def _report(report: Answer) -> Table:
    """Print the fields of a report; return the table of its locations."""
    row = _row(report)
    lines = [(name, cell(row[name])) for name in _FIELDS if row[name] is not None]
    if report.get("found") is False:
        lines.append(("found", "nothing: check type and id, or the data were erased before"))
    if report["parents"]:
        lines.append(("parents", "also removed from the parents and tags of other objects"))
    show(labelled(lines, 13))
    return table(
        _LOCATIONS,
        [
            {**each, "location": each["name"], "until": minute(each["until"])}
            for each in report["locations"]
        ],
    )


def _row(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return *report* with its object as `TYPE/ID`, or the type alone once the id is erased."""
    named = report["object"]
    shown = named["type"] if named["id"] is None else f"{named['type']}/{named['id']}"
    return {**report, "object": shown, "requested": minute(report["requested_at"])}


erase = command_of(
    "erase",
    ErasureRouter.erase_object,
    """
    Erase the object ID of TYPE: remove its data from the log, the state and the archive.

    The object is deleted for all consumers at once. A job then removes the content of all its
    earlier operations, which cannot be undone. Needs a key with the role `erase`, or the ingest
    password.
    """,
    'user ann --reason "request 2026/117"',
    'user ann --reason "request 2026/117" --parents',
    'user ann --reason "old" --before 6923a3e70000000007000000',
    shows=_report,
    # A repeated request with the same key is one erasure.
    by=lambda call: repeated(call, headers={"Idempotency-Key": secrets.token_hex(16)}),
    options={
        "type": Option(is_argument=True),
        "id": Option(is_argument=True),
        "reason": Option(metavar="TEXT"),
        "before": Option(metavar="CURSOR"),
    },
)


erasures = Resource(
    "erasures",
    """
    Show the erasures of a feed, and where the data may still be.

    \b
    Examples:
      tidings erasures list
      tidings erasures show 6923a3e70000000009000000
      tidings erasures show 6923a3e70000000009000000 --json | jq -r .state
    """,
)
erasures.add(
    "list",
    ErasureRouter.list_erasures,
    "Show all erasures, the oldest first.",
    "--json | jq -r '.[] | select(.state != \"done\") | .id'",
    shows=lambda found: rows([*map(_row, found)], _COLUMNS, empty="no erasures"),
    part="erasures",
)
erasures.add(
    "show",
    ErasureRouter.get_erasure,
    """
    Show the report of the erasure ID: for each location, whether the data are erased.

    `done` means erased, `pending` not yet, `outside` that Tidings cannot erase the data there.
    """,
    "6923a3e70000000009000000",
    shows=_report,
)
