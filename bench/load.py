"""Put load on a feed at a constant rate, and check every event that consumers receive.

python -m bench.load                       a temporary server for a minute
python -m bench.load --url URL ...         a running feed
python -m bench.load --stage dev ...       a deployed stage
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import uvloop

from bench import results
from bench.loading import reporting, running
from bench.loading.ledger import RATE, Place, Plan
from bench.loading.running import Run, Unheard
from bench.results import Section
from tidings.client.address import socket_url
from tidings.client.errors import ClientError
from tidings.client.files import read_password
from tidings.server.running import Server

_BOTH = ("ws", "sse")
_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
_POSITIVE = click.IntRange(min=1)
_SECONDS = click.FloatRange(min=0, min_open=True)
TARGET = "each consumer hears each operation once, in the one order; the fold is the state"


@click.command(context_settings={"max_content_width": 100, "show_default": True})
@click.option("--url", help="Address of the feed.  [default: a new server]")
@click.option("--stage", metavar="NAME", help="Name of a deployed stage, instead of --url.")
@click.option("--stream-url", default="", help="Address of its event streams, if it differs.")
@click.option("--ws-url", help="Address of its WebSocket.  [default: /ws on --url]")
@click.option("--feed", default="main", help="Name of the feed.")
@click.option("--read-password-file", type=_FILE, help="File with the password of its readers.")
@click.option("--ingest-password-file", type=_FILE, help="File with the password of its producers.")
@click.option("--producers", default=4, type=_POSITIVE, help="Number of producers.")
@click.option("--rate", default=RATE, type=_SECONDS, help="Operations per second of all producers.")
@click.option("--batch", default=1, type=click.IntRange(1, 1000), help="Operations per request.")
@click.option("--consumers", default=8, type=_POSITIVE, help="Number of consumers.")
@click.option(
    "--transport",
    default="both",
    type=click.Choice(["both", *_BOTH]),
    help="Transport of the consumers.",
)
@click.option(
    "--churn",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Consumers that reconnect, per minute.",
)
@click.option("--duration", "duration_s", default=60.0, type=_SECONDS, help="Duration in seconds.")
@click.option("--objects", default=200, type=_POSITIVE, help="Number of objects.")
@click.option("--size", default=250, type=_POSITIVE, help="Approximate bytes of an operation.")
@click.option("--seed", default=1, help="Seed of the operations.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON instead of the table."
)
@click.option("--save", is_flag=True, help="Write the result to bench/RESULTS.md.")
def main(transport: str, as_json: bool, save: bool, **options: Any) -> None:
    """Put load on a feed and check that nothing is lost.

    Producers keep to a schedule. The time of an operation is counted from when it was due, not
    from when it could be sent, so that a feed that stops shows in the percentiles. The
    operations are of a type of their own, `load-...`, and their objects are deleted at the end.

    \b
    Examples:
      python -m bench.load --rate 100 --consumers 20 --duration 30
      python -m bench.load --url http://127.0.0.1:8042 --churn 60 --transport sse
      python -m bench.load --stage dev --rate 500 --batch 10 --read-password-file r --json

    \b
    Exit codes:
      0  all operations were received, in order
      1  an operation was lost, repeated, moved or altered, or the feed refused it
      2  wrong usage
    """
    transports = _BOTH if transport == "both" else (transport,)
    with _place(**{name: options.pop(name) for name in _OF_THE_PLACE}) as (place, pid):
        plan = Plan(secrets.token_hex(4), transports=transports, **options)
        found = carried_out(plan, place, pid)
    if save:
        shown = section(found)
        results.save({shown.title: shown.markdown()})
    click.echo(json.dumps(reporting.as_json(found)) if as_json else reporting.table(found))
    if found.lost:
        sys.exit(1)


_OF_THE_PLACE = (
    *("url", "stage", "stream_url", "ws_url", "feed"),
    *("read_password_file", "ingest_password_file"),
)


def carried_out(plan: Plan, place: Place, pid: int = 0) -> Run:
    """Run *plan*, with a progress line on a terminal."""

    def tick(run: Run) -> None:
        click.echo(f"\r{reporting.progress(run)}  ", err=True, nl=not sys.stderr.isatty())

    try:
        found: Run = uvloop.run(running.run(plan, place, pid=lambda: pid, tick=tick))
    except (ClientError, Unheard) as error:
        raise click.ClickException(f"{place.url}: {error}") from None
    if sys.stderr.isatty():
        click.echo("", err=True)
    return found


def section(found: Run) -> Section:
    plan = found.plan
    title = f"Load: {plan.rate:g} operations a second, {plan.consumers} consumers"
    return reporting.section(found, title, TARGET)


def measure() -> Section:
    """Put load on a temporary server for a minute, with consumers that leave and return."""
    with Server() as server:
        plan = Plan(secrets.token_hex(4), churn=20.0)
        return section(carried_out(plan, Place(server.url, ws_url=server.ws_url), server.pid))


@contextlib.contextmanager
def _place(
    url: str | None,
    stage: str | None,
    stream_url: str,
    ws_url: str | None,
    feed: str,
    read_password_file: Path | None,
    ingest_password_file: Path | None,
) -> Iterator[tuple[Place, int]]:
    """Yield the named place, and a process to record the memory of, or 0."""
    if url and stage:
        raise click.UsageError("name the feed once: --url or --stage")
    try:
        secret = [
            read_password(each) if each else ""
            for each in (read_password_file, ingest_password_file)
        ]
        if stage:
            yield _deployed(stage, feed, *secret), 0
        elif url:
            yield Place(url, stream_url, socket_url(url, ws_url), feed, *secret), 0
        else:
            with Server("--feeds", feed) as server:
                yield Place(server.url, ws_url=server.ws_url, feed=feed), server.pid
    except ClientError as error:
        raise click.ClickException(str(error)) from None


def _deployed(stage: str, feed: str, *secret: str) -> Place:
    """Return the addresses of *stage*. AWS is only imported for a stage."""
    from tidings.admin.target import addresses

    found = addresses(stage)
    return Place(found.feed, found.stream, found.sockets, feed, *secret)


if __name__ == "__main__":
    main()
