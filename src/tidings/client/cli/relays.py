"""`tidings relays`: show and control the chained feeds of a deployment."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli import render
from tidings.client.cli.main import FOUND
from tidings.client.cli.options import Command
from tidings.client.cli.render import cell, table
from tidings.client.cli.resources import Call, Option, Resource
from tidings.client.errors import Refused
from tidings.http.endpoints.replication import ReplicaRouter

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

relays = Resource(
    "relays",
    """
    Show and steer the chained feeds of a deployment: the feeds that copy another feed.

    \b
    Examples:
      tidings relays list --watch              all feeds, every 2 seconds
      tidings relays pause main                read nothing until it is resumed
      tidings relays reset main --to everything --why "restored from a backup"
      tidings relays password main secret.txt  the password for the upstream
      tidings relays yield main --to https://NEW/feeds/main --url http://OLD
      tidings relays promote main --url https://NEW   once every page is copied
    """,
    feed_argument="FEED",
)


def _check_option(command: Callable[..., Any]) -> Command:
    @click.option("--check", is_flag=True, help="Exit with 3 unless every feed is running.")
    @functools.wraps(command)
    def with_check(check: bool, **others: Any) -> None:
        feeds = command(**others)
        if check and any(each["status"] not in _WELL for each in feeds):
            click.get_current_context().exit(FOUND)

    return with_check


def _watched(call: Call) -> Answer:
    if call.others["watch"]:
        with suppress(KeyboardInterrupt):  # Ctrl-C ends --watch
            render.watch(lambda: _table(call.send()["relays"]), EVERY_S)
        click.get_current_context().exit()
    return call.send()


def _table(feeds: list[Answer]) -> Table:
    return table(_LIST, [each | {"page": each.get("page", each["head"])} for each in feeds])


relays.add(
    "list",
    ReplicaRouter.list_relays,
    "Show every feed: its upstream, its role and its lag.",
    "",
    "--check --json",
    shows=_table,
    part="relays",
    by=_watched,
    others=[
        _check_option,
        click.option(
            "--watch",
            is_flag=True,
            help=f"Show the feeds every {EVERY_S:.0f} seconds, until Ctrl-C.",
        ),
    ],
)


def _show(relay: Answer) -> str:
    lines = [
        (render.without_unit(name), cell(value, of=name))
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
    return render.labelled(lines, 21)


relays.add(
    "show", ReplicaRouter.get_relay, "Show the complete status of one feed.", "main", shows=_show
)


def _with_members(call: Call) -> Answer:
    found = call.send().get("members", [])
    if found is None:
        raise click.ClickException("the table of the leader election does not answer")
    return {"members": found}


relays.add(
    "members",
    ReplicaRouter.get_relay,
    "Show the members of a feed's cluster, and which of them lead.",
    "main",
    shows=lambda members: table(_MEMBERS, members),
    part="members",
    by=_with_members,
)


def _done(relay: Answer) -> str:
    return f"{relay['feed']} is {relay['status']} at page {relay['page']:,}"


relays.add(
    "pause",
    ReplicaRouter.pause_relay,
    "Stop reading until the feed is resumed; a leader keeps its lease.",
    "main",
    shows=_done,
)
relays.add(
    "resume",
    ReplicaRouter.resume_relay,
    "Resume a paused feed at its saved place.",
    "main",
    shows=_done,
)
relays.add(
    "shutdown",
    ReplicaRouter.shut_down_relay,
    "Stop reading and release the lease until the feed is started.",
    "main",
    shows=_done,
)
relays.add(
    "start",
    ReplicaRouter.start_relay,
    "Start a feed at its saved place, after a shutdown or the repair of an error.",
    "main",
    shows=_done,
)
relays.add(
    "reset",
    ReplicaRouter.reset_relay,
    "Discard the local log and start again; readers are notified, as after any loss of pages.",
    'main --to everything --why "restored from a backup"',
    shows=_done,
    options={"to": Option(metavar="PLACE")},
)


def _yield(relay: Answer) -> str:
    to = click.get_current_context().params["to_"]
    return f"{relay['feed']} ends with page {relay['head']:,}; producers are sent to {to}"


relays.add(
    "yield",
    ReplicaRouter.yield_feed,
    """
    Refuse producers from now on, and send them to the feed at --to, which copies this feed.

    Readers are served as before. `promote`, run on the copy, makes the copy the master.
    """,
    "main --to https://NEW/feeds/main --url http://OLD",
    shows=_yield,
    options={"to": Option(metavar="URL")},
)


def _until_complete(call: Call) -> Answer:
    until_s = time.monotonic() + call.others["wait_s"]
    while True:
        try:
            return call.send()
        except Refused as refused:
            if refused.code != _INCOMPLETE or time.monotonic() >= until_s:
                raise
            time.sleep(AGAIN_S)


relays.add(
    "promote",
    ReplicaRouter.promote_relay,
    """
    Accept producers from now on: this feed continues the log that it copied.

    The command is refused until the upstream has yielded and every page is copied. If the
    upstream is lost, give the reason with --why. With --why, a feed that has yielded accepts
    producers again.
    """,
    "main --url https://NEW",
    'main --url https://NEW --why "the old server is lost"',
    shows=lambda relay: f"{relay['feed']} accepts posts after page {relay['head']:,}",
    by=_until_complete,
    options={
        "why": Option(
            metavar="TEXT",
            text="Promote although pages may be missing, or after a yield; the reason is stored.",
        )
    },
    others=[
        click.option(
            "--wait",
            "wait_s",
            type=click.IntRange(0),
            default=60,
            show_default=True,
            metavar="SECONDS",
            help="Maximum time to wait for the last pages of the feed that yielded.",
        )
    ],
)


def _first_line(call: Call) -> Answer:
    line = call.others["file"].readline().removesuffix("\n").removesuffix("\r")
    return call.send(password=line)


relays.add(
    "password",
    ReplicaRouter.set_relay_password,
    """
    Store the password for the upstream: the first line of FILE, or of stdin.

    An empty line removes the password. A password cannot be shown again.
    """,
    "main secret.txt",
    "pass show feed | tidings relays password main",
    shows=lambda stored: f"{stored['feed']}: password {stored['password']}",
    by=_first_line,
    options={"password": None},
    others=[click.argument("file", type=click.File("r"), default="-")],
)
