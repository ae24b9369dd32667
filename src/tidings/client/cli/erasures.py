"""`tidings erase` and `tidings erasures`: erase the data of an object, and show how far it is."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Access, access_options, json_option
from tidings.client.cli.render import cell, compact, failures, printable, retrying, show, table
from tidings.client.retries import repeat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.client.feed_api import Answer

ATTEMPTS = 5  # in half a minute, in which a server restarts
_LINE = "{id:<24}  {state:<7}  {requested:<17}  {object}"
_FIELDS = ("id", "object", "state", "reason", "by", "requested_at", "erased_at", "until", "before")
_LOCATIONS = ("location", "status", "until", "note")


@click.command(epilog=EXIT_CODES)
@click.argument("type")
@click.argument("id")
@click.option(
    "--reason",
    required=True,
    metavar="TEXT",
    help="Reason, stored for ever and sent to consumers; without personal data.",
)
@click.option(
    "--parents",
    is_flag=True,
    help="Also remove TYPE/ID from the parents and tags of all other objects.",
)
@click.option("--before", metavar="CURSOR", help="Only erase operations before this event id.")
@json_option
@access_options
def erase(
    type: str, id: str, reason: str, parents: bool, before: str | None, as_json: bool, feed: Access
) -> None:
    """Erase the object ID of TYPE: remove its data from the log, the state and the archive.

    The object is deleted for all consumers at once. A job then removes the content of all its
    earlier operations, which cannot be undone. Needs a key with the role `erase`, or the ingest
    password.

    \b
    Examples:
      tidings erase user ann --reason "request 2026/117"
      tidings erase user ann --reason "request 2026/117" --parents
      tidings erase user ann --reason "old" --before 6923a3e70000000007000000
    """
    from tidings.client.feed_api import Erasures

    wanted: dict[str, Any] = {"parents": parents, "before": before or ""}
    wanted["key"] = secrets.token_hex(16)  # so that a repeated request is one erasure
    with failures(), Erasures(feed.url, feed.feed, **feed.access) as api:
        report = repeat(
            lambda: api.erase(type, id, reason, **wanted),
            attempts_max=ATTEMPTS,
            within_s=feed.timeout_s,
            on_lost=retrying,
            wait=time.sleep,
        )
    _print(report, as_json=as_json)


@click.group(epilog=EXIT_CODES)
def erasures() -> None:
    """Show the erasures of a feed, and where the data may still be.

    \b
    Examples:
      tidings erasures list
      tidings erasures show 6923a3e70000000009000000
      tidings erasures show 6923a3e70000000009000000 --json | jq -r .state
    """


@erasures.command("list", epilog=EXIT_CODES)
@json_option
@access_options
def list_(as_json: bool, feed: Access) -> None:
    """Show all erasures, the oldest first.

    \b
    Example:
      tidings erasures list --json | jq -r '.[] | select(.state != "done") | .id'
    """
    from tidings.client.feed_api import Erasures

    with failures(), Erasures(feed.url, feed.feed, **feed.access) as api:
        reports = api.all()
    if as_json:
        click.echo(compact(reports))
        return
    if not reports:
        click.echo("no erasures")
        return
    # Lines instead of a table, which would break the ids in a narrow terminal.
    click.echo(_LINE.format(id="id", state="state", requested="requested", object="object"))
    for row in map(_row, reports):
        requested = _minute(row["requested_at"])
        named = {"id": row["id"], "state": row["state"], "object": printable(row["object"])}
        click.echo(_LINE.format(**named, requested=requested))


@erasures.command("show", epilog=EXIT_CODES)
@click.argument("id")
@json_option
@access_options
def show_(id: str, as_json: bool, feed: Access) -> None:
    """Show the report of the erasure ID: for each location, whether the data are erased.

    `done` means erased, `pending` not yet, `outside` that Tidings cannot erase the data there.

    \b
    Example:
      tidings erasures show 6923a3e70000000009000000
    """
    from tidings.client.feed_api import Erasures

    with failures(), Erasures(feed.url, feed.feed, **feed.access) as api:
        report = api.show(id)
    _print(report, as_json=as_json)


def _print(report: Answer, *, as_json: bool) -> None:
    if as_json:
        click.echo(compact(report))
        return
    row = _row(report)
    for field in _FIELDS:
        if row[field] is not None:
            click.echo(f"{field:<13} {cell(row[field])}")
    if report.get("found") is False:
        click.echo(f"{'found':<13} nothing: check type and id, or the data were erased before")
    if report["parents"]:
        click.echo(f"{'parents':<13} also removed from the parents and tags of other objects")
    locations = [
        {**each, "location": each["name"], "until": _minute(each["until"])}
        for each in report["locations"]
    ]
    show(table(_LOCATIONS, locations))


def _minute(time: str | None) -> str:
    """Return *time* as `2026-11-20 17:19Z`; "" for None."""
    return f"{time[:10]} {time[11:16]}Z" if time else ""


def _row(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return *report* with its object as `TYPE/ID`, or the type alone once the id is erased."""
    named = report["object"]
    shown = named["type"] if named["id"] is None else f"{named['type']}/{named['id']}"
    return {**report, "object": shown}
