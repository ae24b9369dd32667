"""Print the events of a feed (`tail`), its items (`snoop`) or the operations of its log (`log`)."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    Access,
    access_options,
    filter_options,
    json_option,
    switch_options,
)
from tidings.client.errors import Lost, WrongUrl
from tidings.client.retries import PRINT_S, is_over, stop_on_signals
from tidings.core.model.operations import to_canonical_json

if TYPE_CHECKING:
    from tidings.client.feed_api import NamedConsumers

LOOK_EVERY_S = 0.2  # an idle `tail` notices a signal within this time
EMPTY = "-1"  # printed in place of an id if the log has no message


@click.command(epilog=EXIT_CODES)
@access_options
@click.option("--ws-url", help="Address of the WebSocket.  [default: /ws of --url]")
@click.option(
    "--from",
    "cursor",
    metavar="CURSOR",
    help="Start after this event id, with a copy of everything (`0`), or at the end (`now`, the"
    " default).",
)
@filter_options
@switch_options
@click.option(
    "--state-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the cursor in this file, and resume from it the next time.",
)
@click.option(
    "--allow-replication",
    is_flag=True,
    help="Start with a copy of everything if the file of --state-file is missing or empty, unless"
    " --from is given. Ignored without --state-file.",
)
@click.option(
    "--transport",
    type=click.Choice(["ws", "sse"]),
    default="ws",
    show_default=True,
    help="WebSocket or Server-Sent Events.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N operations.")
@click.argument("address", required=False, metavar="[URL]")
def tail(
    feed: Access, wanted: dict[str, Any], as_json: bool, count: int | None, **options: Any
) -> None:
    """Show the events of the feed at URL (or --url), one line per event, until Ctrl-C.

    After a lost connection, the command reconnects, with a line on stderr, and resumes after the
    last event shown. `** reset` means that a copy of everything follows, `** live` that the copy is
    complete.

    \b
    Examples:
      tidings tail                                    changes from now on
      tidings tail --from 0 --types video,channel     a copy first, of two types
      tidings tail --ids 'x3*'                        ids that begin with x3
      tidings tail --state-file seen --json           for programs that restart
      tidings tail --state-file seen --allow-replication   first start with a copy
      tidings tail --from 0 --count 10                ten operations, then stop
    """
    from tidings.client.consumer import Consumer

    stopped = threading.Event()
    stop_on_signals(stopped.set, within_s=PRINT_S)
    options |= {"feed": feed.feed, **feed.access, **wanted}
    with (
        render.failures(usage=WrongUrl),
        Consumer(feed.url, **options, on_lost=render.retrying) as consumer,
    ):
        while not (stopped.is_set() or consumer.ended or count == 0):
            delivery = consumer.within(LOOK_EVERY_S)
            if delivery is not None:
                event = delivery.event
                click.echo(render.machine(event) if as_json else render.human(event))
                delivery.ack()
                count = count - 1 if count and delivery.is_operation else count


@click.command(epilog=EXIT_CODES)
@click.option("-r", "--resource", help="Resource to listen for.")
@click.option("-s", "--sub-resources", metavar="SUB,SUB", help="Sub-resources to listen for.")
@json_option
@access_options
@click.option("--ws-url", help="Address of the WebSocket.  [default: /ws of --url]")
@click.pass_context
def snoop(
    ctx: click.Context,
    /,
    resource: str | None,
    sub_resources: str | None,
    feed: Access,
    ws_url: str | None,
    as_json: bool,
) -> None:
    """Print every matching item of a feed, one line of JSON each, until Ctrl-C.

    The output is JSON with or without --json.

    The command is a listener of Triton's protocol. After a lost connection, it reconnects. The exit
    code is 1 if the registration is refused or an option is missing.

    \b
    Example:
      tidings snoop -r vm -s nic,alias
    """
    if not resource or not sub_resources:
        click.echo(ctx.get_usage(), err=True)
        click.echo("Error: -r and -s are both needed", err=True)
        ctx.exit(1)
    import secrets  # importing it takes milliseconds, which other commands do not need

    from tidings.client.listener import Ended, Item, Listener

    with (
        render.failures(),
        suppress(KeyboardInterrupt),
        Listener(
            feed.url,
            instance=secrets.token_hex(16),
            service="tidings-snoop",
            resources={resource: [sub for sub in sub_resources.split(",") if sub]},
            feed=feed.feed,
            password=feed.password,
            ws_url=ws_url,
            fetch=lambda bootstrap: (),
        ) as listener,
    ):
        without_s = time.monotonic()  # since when no attempt to register was successful
        for signal in listener:
            if isinstance(signal, Ended):
                lost = Lost(signal.reason)
                if signal.refused or is_over(without_s, signal.delay_s, feed.timeout_s):
                    raise lost
                render.retrying(lost, signal.delay_s)
                continue
            without_s = time.monotonic()
            if isinstance(signal, Item):
                click.echo(to_canonical_json(signal.fields))
                sys.stdout.flush()


@click.group(epilog=EXIT_CODES)
def log() -> None:
    """Show the log of a feed. These commands change nothing and are safe while the feed is in use.

    \b
    Examples:
      tidings log oldest                  the first message in the log
      tidings log end                     the cursor after the last message
      tidings log show ID                 one message
      tidings log show ID..OTHER --json   the messages from ID to OTHER
    """


def _add(name: str, text: str, example: str, empty: str) -> None:
    shown = f"{inspect.cleandoc(text)}\n\n\b\nExample:\n  {example}"

    @log.command(name, help=shown, epilog=EXIT_CODES)
    @json_option
    @access_options
    def command(as_json: bool, feed: Access) -> None:
        found = feed.ask("GET", "log")[name]
        render.answer({name: found}, found or empty, as_json=as_json)


for _name, _which in (("oldest", "first"), ("current", "last")):
    _text = f"Print the id of the {_which} message in the log; {EMPTY} if the log is empty."
    _add(_name, _text, f"tidings log {_name} --feed orders", EMPTY)
_add(
    "end",
    """Print the cursor after the last message of the log.

    Run this command before you create a dump for `tidings sync`, and pass the cursor as --as-of.
    """,
    "began=$(tidings log end --stage dev); ./export > videos.json",
    "",
)


@log.command(epilog=EXIT_CODES)
@click.argument("offset", metavar="X[..Y]")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each message.")
@access_options
def show(offset: str, as_json: bool, feed: Access) -> None:
    """Print the message X, or all messages from X to Y.

    X and Y are ids of messages. Without Y (`X..`), the range extends to the end of the log.

    \b
    Examples:
      tidings log show 6923a3e70000000007000000
      tidings log show 6923a3e70000000007000000.. --json | jq .data
    """
    first, dots, last = offset.partition("..")
    each = None
    with feed.asking() as api:
        for each in _entries(api, first, last if dots else first):
            click.echo(render.compact(each) if as_json else render.describe_entry(each))
    if each is None:
        raise click.ClickException(f"message {offset} is not in the log")


def _entries(api: NamedConsumers, first: str, last: str) -> Iterator[dict[str, Any]]:
    """Yield the operations from *first* to *last*, both included; request a thousand at a time."""
    end = {"to": last} if last else {}
    begun, seen = first, ""
    while True:
        page = [each for each in api.log({"from": begun, **end})["entries"] if each["id"] != seen]
        yield from page
        if not page or page[-1]["id"] == last:
            return
        begun = seen = page[-1]["id"]
