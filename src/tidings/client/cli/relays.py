"""`tidings relays`: show and control the chained feeds of a deployment."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

import click

from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Access, access_of_argument, json_option
from tidings.client.cli.render import answer, cell, compact, table
from tidings.client.errors import Refused

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client.feed_api import Answer

AGAIN_S = 0.5  # the pause between attempts of `promote`; the last pages arrive within a second
EVERY_S = 2.0  # the interval of --watch; an election takes a few seconds
_LIST = ("feed", "status", "role", "page", "lag_pages", "lag_ms", "upstream", "error")
_MEMBERS = ("address", "role", "page", "heard_ms_ago", "gone")
_ENDS = ("min", "max")
_APART = ("members", "copy", *_ENDS)  # fields that are shown separately
_WELL = ("running", "master", "yielded")
_INCOMPLETE = "not_whole"
_NAME_CHARS = 21

_feed = click.argument("feed")


@click.group(epilog=EXIT_CODES)
def relays() -> None:
    """Show and steer the chained feeds of a deployment: the feeds that copy another feed.

    \b
    Examples:
      tidings relays list --watch              all feeds, every 2 seconds
      tidings relays pause main                read nothing until it is resumed
      tidings relays reset main --to everything --why "restored from a backup"
      tidings relays password main secret.txt  the password for the upstream
      tidings relays yield main --to https://NEW/feeds/main --url http://OLD
      tidings relays promote main --url https://NEW   once every page is copied
    """


@relays.command("list", epilog=EXIT_CODES)
@json_option
@click.option(
    "--watch", is_flag=True, help=f"Show the feeds every {EVERY_S:.0f} seconds, until Ctrl-C."
)
@click.option("--check", is_flag=True, help="Exit with 1 unless every feed is running.")
@access_of_argument
def list_(as_json: bool, watch: bool, check: bool, feed: Access) -> None:
    """Show every feed: its upstream, its role and its lag.

    \b
    Examples:
      tidings relays list
      tidings relays list --check --json
    """
    with feed.asking() as api:
        if watch:
            with suppress(KeyboardInterrupt):  # Ctrl-C ends --watch
                render.watch(lambda: _table(api.ask("GET", "/relays")["relays"]), EVERY_S)
            return
        feeds = api.ask("GET", "/relays")["relays"]
    if as_json:
        click.echo(compact(feeds))
    else:
        render.show(_table(feeds))
    if check and any(each["status"] not in _WELL for each in feeds):
        click.get_current_context().exit(1)


@relays.command(epilog=EXIT_CODES)
@_feed
@json_option
@access_of_argument
def show(as_json: bool, feed: Access) -> None:
    """Show the complete status of one feed.

    \b
    Example:
      tidings relays show main
    """
    relay = feed.ask("GET", "relay")
    if as_json:
        click.echo(compact(relay))
    else:
        _describe(relay)


@relays.command(epilog=EXIT_CODES)
@_feed
@json_option
@access_of_argument
def members(as_json: bool, feed: Access) -> None:
    """Show the members of a feed's cluster, and which of them lead.

    \b
    Example:
      tidings relays members main
    """
    each_one = feed.ask("GET", "relay").get("members", [])
    if each_one is None:
        raise click.ClickException("the table of the leader election does not answer")
    if as_json:
        click.echo(compact(each_one))
    else:
        render.show(table(_MEMBERS, each_one))


def _add(action: str, text: str) -> None:
    shown = f"{text}\n\n\b\nExample:\n  tidings relays {action} main"

    @relays.command(action, help=shown, epilog=EXIT_CODES)
    @_feed
    @json_option
    @access_of_argument
    def command(as_json: bool, feed: Access) -> None:
        _act(feed, action, {}, as_json=as_json)


_add("pause", "Stop reading until the feed is resumed; a leader keeps its lease.")
_add("resume", "Resume a paused feed at its saved place.")
_add("shutdown", "Stop reading and release the lease until the feed is started.")
_add("start", "Start a feed at its saved place, after a shutdown or the repair of an error.")


@relays.command(epilog=EXIT_CODES)
@_feed
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="Start with everything (the upstream's state, then its log), latest (new events only) or"
    " the id of an event.",
)
@click.option("--why", required=True, metavar="TEXT", help="Reason, stored with the change.")
@json_option
@access_of_argument
def reset(to: str, why: str, as_json: bool, feed: Access) -> None:
    """Discard the local log and start again; readers are notified, as after any loss of pages.

    \b
    Example:
      tidings relays reset main --to everything --why "restored from a backup"
    """
    _act(feed, "reset", {"to": to, "why": why}, as_json=as_json)


@relays.command("yield", epilog=EXIT_CODES)
@_feed
@click.option(
    "--to", required=True, metavar="URL", help="The feed that continues: https://HOST/feeds/NAME."
)
@json_option
@access_of_argument
def yield_(to: str, as_json: bool, feed: Access) -> None:
    """Refuse producers from now on, and send them to the feed at --to, which copies this feed.

    Readers are served as before. `promote`, run on the copy, makes the copy the master.

    \b
    Example:
      tidings relays yield main --to https://NEW/feeds/main --url http://OLD
    """
    relay = feed.ask("POST", "relay/yield", body={"to": to})
    line = f"{feed.feed} ends with page {relay['head']:,}; producers are sent to {to}"
    answer(relay, line, as_json=as_json)


@relays.command(epilog=EXIT_CODES)
@_feed
@click.option(
    "--why",
    metavar="TEXT",
    help="Promote although pages may be missing, or after a yield; the reason is stored.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait for the last pages of the feed that yielded.",
)
@json_option
@access_of_argument
def promote(why: str | None, wait_s: int, as_json: bool, feed: Access) -> None:
    """Accept producers from now on: this feed continues the log that it copied.

    The command is refused until the upstream has yielded and every page is copied. If the
    upstream is lost, give the reason with --why. With --why, a feed that has yielded accepts
    producers again.

    \b
    Examples:
      tidings relays promote main --url https://NEW
      tidings relays promote main --url https://NEW --why "the old server is lost"
    """
    until_s = time.monotonic() + wait_s
    with feed.asking() as api:
        while True:
            try:
                relay = api.ask("POST", "relay/promote", body={"why": why} if why else {})
                break
            except Refused as refused:
                if refused.code != _INCOMPLETE or time.monotonic() >= until_s:
                    raise
                time.sleep(AGAIN_S)
    line = f"{feed.feed} accepts posts after page {relay['head']:,}"
    answer(relay, line, as_json=as_json)


@relays.command(epilog=EXIT_CODES)
@_feed
@click.argument("file", type=click.File("r"), default="-")
@json_option
@access_of_argument
def password(file: IO[str], as_json: bool, feed: Access) -> None:
    """Store the password for the upstream: the first line of FILE, or of stdin.

    An empty line removes the password. A password cannot be shown again.

    \b
    Examples:
      tidings relays password main secret.txt
      pass show feed | tidings relays password main
    """
    line = file.readline().removesuffix("\n").removesuffix("\r")
    stored = feed.ask("PUT", "relay/password", body={"password": line})
    answer(stored, f"{feed.feed}: password {stored['password']}", as_json=as_json)


def _act(feed: Access, action: str, fields: dict[str, str], *, as_json: bool) -> None:
    relay = feed.ask("POST", f"relay/{action}", body=fields)
    line = f"{feed.feed} is {relay['status']} at page {relay['page']:,}"
    answer(relay, line, as_json=as_json)


def _table(feeds: list[Answer]) -> Table:
    return table(_LIST, [each | {"page": each.get("page", each["head"])} for each in feeds])


def _describe(relay: Answer) -> None:
    lines = [
        (name, cell(value))
        for name, value in relay.items()
        if name not in _APART and value not in ("", [], None)
    ]
    ends = [(name, relay[name]) for name in _ENDS if relay.get(name)]
    lines += [(name, f"{end['cursor']} of {end['time']}") for name, end in ends]
    if copy := relay.get("copy"):
        lines.append(("copied", f"{copy['buckets_done']} of {copy['buckets']} buckets"))
    for each in relay.get("members") or ():
        position = f"{each['role']} at page {each['page']:,}" + (", gone" if each["gone"] else "")
        lines.append(("member", f"{cell(each['address'])}: {position}"))
    for name, text in lines:
        click.echo(f"{name:<{_NAME_CHARS}} {text}")
