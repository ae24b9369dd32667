"""`tidings agent`: a producer's operations, kept on disk and posted to a feed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tidings.agent import options, running, store
from tidings.agent.notices import Notices
from tidings.agent.options import Bound, Options, Problem
from tidings.client.address import operations_url
from tidings.client.cli.options import feed_option, password_options
from tidings.client.cli.render import plain
from tidings.client.errors import WrongUrl
from tidings.core.errors import InvalidFeed
from tidings.core.model.feeds import check_name
from tidings.core.model.numbers import whole

HOST = "127.0.0.1"  # UDP has no password: other machines get access only on purpose


def _address(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `HOST`, `:PORT` (every address, as in oplog) or `[IPV6]:PORT`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(options.PORT)
    try:
        return host.strip("[]") or "0.0.0.0", whole(port, 0, 65_535)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", ctx, param) from None


def _default_folder() -> Path:
    state_home = os.environ.get("XDG_STATE_HOME", "")  # noqa: TID251 where users keep such things
    return store.default_folder(Path.home(), state_home)


@click.command()
@click.option("--url", required=True, help="Where the feed is, https://...")
@feed_option
@password_options
@click.option(
    "--listen",
    callback=_address,
    default=f"{HOST}:{options.PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where UDP and HTTP are taken; `:8042` is every address of this machine.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Answer HTTP as this host too, beside localhost and addresses; may be repeated.",
)
@click.option(
    "--queue-dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the queue in this folder; default: tidings/agent below ~/.local/state.",
)
@click.option(
    "--max-queued-events",
    type=click.IntRange(1),
    default=options.QUEUED_EVENTS_MAX,
    show_default=True,
    help="Take no more operations than this.",
)
@click.option(
    "--max-queued-bytes",
    type=click.IntRange(1),
    default=options.QUEUED_BYTES_MAX,
    show_default=True,
    help="Nor more bytes than this.",
)
@click.option(
    "--drain-seconds",
    "drain_s",
    type=click.FloatRange(0),
    default=options.DRAIN_S,
    show_default=True,
    help="When it is stopped, send what is queued for at most this long.",
)
def agent(
    url: str,
    feed: str,
    listen: tuple[str, int],
    folder: Path | None,
    max_queued_events: int,
    max_queued_bytes: int,
    **others: Any,
) -> None:
    """
    Take operations over UDP and HTTP, keep them on disk, post them to a feed in batches.

    It runs beside a producer, which never waits for the network: a datagram is one operation in
    JSON; a POST to / is answered with 204 once its operations are safe on disk. GET /status
    counts. The password is the feed's and is shown nowhere.

    \b
    Examples:
      tidings agent --url https://feed.example.org --password-file ~/ingest-password
      tidings agent --url http://127.0.0.1:8042 --listen 127.0.0.1:8043
      echo -n '{"event":"update","type":"video","id":"x32"}' | nc -u -w0 127.0.0.1 8043
      curl http://127.0.0.1:8043/status

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM; what is left on disk is sent by the next one
      1  it could not start or go on; one sentence says why
      2  usage
    """
    try:
        operations_url(url, check_name(feed))
    except (WrongUrl, InvalidFeed) as error:
        raise click.UsageError(str(error)) from None
    bound, (host, port) = Bound(max_queued_events, max_queued_bytes), listen
    wanted = Options(url, feed, host, port, folder or _default_folder(), bound, **others)
    try:
        left = asyncio.run(_run(wanted))
    except Problem as problem:
        click.echo(f"tidings agent: {problem}", err=True)
        sys.exit(1)
    click.echo(f"tidings agent ended, {left:,} operations left in {wanted.folder}")
    sys.stdout.flush()
    # A request that still waits for the feed must not delay the exit.
    os._exit(0)


async def _run(wanted: Options) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    made = running.start(wanted, Notices(_say))

    def ready() -> None:
        click.echo(f"tidings agent ready {made.address}, {made.held:,} operations queued")

    return await made.run(ready, stopped)


def _say(line: str) -> None:
    click.echo(f"tidings agent: {plain(line)}", err=True)
