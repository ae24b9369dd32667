"""`tidings tail`: print a feed as lines of text, with reconnects and a state file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    address_options,
    feed_option,
    filter_options,
    password_options,
)
from tidings.client.consumer import Consumer
from tidings.client.errors import WrongUrl


class Interrupts:
    """
    Raises KeyboardInterrupt on Ctrl-C and SIGTERM, but only between two events.

    So every printed event is also acknowledged. The second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self._busy = False
        self._wanted = False

    def __enter__(self) -> Interrupts:
        self._before = {kind: signal.signal(kind, self._stop) for kind in self._kinds}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    _kinds = (signal.SIGINT, signal.SIGTERM)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._wanted or not self._busy:
            raise KeyboardInterrupt
        self._wanted = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay an interrupt until the end of the body."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._wanted:
            raise KeyboardInterrupt


@click.command(epilog=EXIT_CODES)
@address_options
@click.option("--ws-url", help="Where its WebSocket is, if not at /ws of --url.")
@feed_option
@click.option(
    "--from",
    "cursor",
    metavar="CURSOR",
    help="Start after this event id; `0` for a copy of everything first, `now` (default) for the"
    " end.",
)
@filter_options
@click.option(
    "--leave",
    is_flag=True,
    help="Tell of objects that leave this filter, too, if the feed keeps what that takes.",
)
@password_options
@click.option(
    "--state-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the cursor in this file, and go on from there the next time.",
)
@click.option(
    "--allow-replication",
    is_flag=True,
    help="With --state-file, while it is missing or empty: start with a copy of everything."
    " Without --state-file it is ignored.",
)
@click.option(
    "--transport",
    type=click.Choice(["ws", "sse"]),
    default="ws",
    show_default=True,
    help="WebSocket or Server-Sent Events.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N operations.")
@click.argument("address", required=False, metavar="[URL]")
def tail(
    url: str, wanted: dict[str, Any], as_json: bool, count: int | None, **options: Any
) -> None:
    """
    Show the feed at URL (or --url) as it moves: one line per event, until Ctrl-C.

    A lost connection is made again (told on stderr), and the feed goes on after the last event
    shown. `** reset` means that a copy of everything follows, `** live` that it is complete.

    \b
    Examples:
      tidings tail                                    what happens from now on
      tidings tail --from 0 --types video,channel     a copy first, of two types
      tidings tail --ids 'x3*'                        what happens to objects whose ids begin so
      tidings tail --state-file seen.cursor --json    for a program that may be restarted
      tidings tail --state-file seen --allow-replication   the same, with a copy to begin with
      tidings tail --from 0 --count 10                ten operations, then stop
    """
    with render.failures(usage=WrongUrl):
        consumer = Consumer(url, **wanted, **options, on_lost=render.retrying)
        with Interrupts() as interrupts, consumer, suppress(KeyboardInterrupt):
            _print(consumer, count, as_json, interrupts)


def _print(consumer: Consumer, count: int | None, as_json: bool, interrupts: Interrupts) -> None:
    """Print until *count* operations or an interrupt, and acknowledge printed events."""
    left = count
    for delivery in consumer:
        with interrupts.held():
            event = delivery.event
            click.echo(render.machine(event) if as_json else render.human(event))
            delivery.ack()
        if left is not None and delivery.is_operation:
            left -= 1
            if left == 0:
                return
