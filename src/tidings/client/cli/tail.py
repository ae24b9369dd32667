"""Print the events of a feed (`tail`), its items (`snoop`) or the operations of its log (`log`)."""

from __future__ import annotations

import inspect
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli import render
from tidings.client.cli.lines import Line, line_of, plain
from tidings.client.cli.log_range import LogRange, Matches, Moment, before, matching
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    Access,
    access_options,
    filter_options,
    json_option,
    switch_options,
)
from tidings.client.cli.render import machine
from tidings.client.errors import Lost, WrongUrl
from tidings.client.events import RESET, Event
from tidings.client.retries import PRINT_S, is_over, stop_on_signals
from tidings.core.model.operations import to_canonical_json

if TYPE_CHECKING:
    from tidings.client.feed_api import NamedConsumers

LOOK_EVERY_S = 0.2  # an idle `tail` notices a signal within this time
DECIMAL_MAX = 13  # digits of a cursor that requests a copy
EMPTY = "-1"  # printed in place of an id if the log has no message


@click.command(epilog=EXIT_CODES)
@access_options
@click.option("--ws-url", help="Address of the WebSocket.  [default: /ws of --url]")
@click.option(
    "--from",
    "begin",
    type=Moment(cursors=True),
    metavar="START",
    help="Start with a copy of everything (`0`), the log (`oldest`), a time with its zone"
    " (2026-11-28T21:00Z), an age (90s, 1h, 2d), after an event id, or at the end (`now`, the"
    " default).",
)
@click.option(
    "--until",
    "until_ms",
    type=Moment(),
    metavar="TIME",
    help="Stop before the events that were committed at this time, with its zone, or age.",
)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start with the last N operations of the log that match.",
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
@click.option(
    "--fields",
    metavar="A,B",
    help="Print these fields of an event, separated by tabs: time, event, type, id, object,"
    " parents, data, data.NAME, cursor.",
)
@click.option("--format", "template", metavar="TEXT", help="Print TEXT with {FIELD} replaced.")
@click.option(
    "--grep",
    metavar="REGEX",
    help="Print only events that match in the line `TIME EVENT TYPE/ID DATA`.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N operations, or after a copy with fewer.",
)
@click.argument("address", required=False, metavar="[URL]")
def tail(
    feed: Access,
    wanted: dict[str, Any],
    begin: str | int | None,
    until_ms: int | None,
    last: int | None,
    as_json: bool,
    fields: str | None,
    template: str | None,
    grep: str | None,
    count: int | None,
    **options: Any,
) -> None:
    """Show the events of the feed at URL (or --url), one line per event, until Ctrl-C.

    A line has the time, the event, TYPE/ID and the data of the operation. Lines are cut at the
    width of a terminal, but never in a pipe. Remarks are on stderr: `** reset` before a copy of the
    current state, `** live` after it, and lost connections, after which the command resumes after
    the last event shown.

    \b
    Examples:
      tidings tail                                    changes from now on
      tidings tail -n 20                              the last 20 changes first
      tidings tail --from 1h --types video,channel    the last hour, of two types
      tidings tail --from 0 --grep draft              a copy first, filtered
      tidings tail --from 2d --until 1d --json        one day of the log
      tidings tail --format '{time} {id} {data.title}'
      tidings tail --ids 'x3*'                        ids that begin with x3
      tidings tail --state-file seen --json           for programs that restart
      tidings tail --state-file seen --allow-replication   first start with a copy
    """
    if sum((as_json, fields is not None, template is not None)) > 1:
        raise click.UsageError("give only one of --json, --fields and --format")
    if last is not None and begin is not None:
        raise click.UsageError("--last cannot be used with --from")
    line = line_of(as_json, template, (fields or "").split(",") if fields else ())
    printer = _Printer(line, _pattern(grep), count)
    cursor = begin if isinstance(begin, str) else None
    if isinstance(begin, int) or last is not None or _is_past(until_ms):
        with feed.asking() as api:
            found = LogRange(api)
            cursor = _start(found, begin, until_ms, last, matching(wanted))
            if _is_past(until_ms):
                assert until_ms is not None
                _show_past(found, cursor, until_ms, matching(wanted), printer)
                return
    _follow(feed, {**options, **wanted, "cursor": cursor}, until_ms, printer)


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    try:
        return None if grep is None else re.compile(grep)
    except re.error as error:
        raise click.UsageError(f"--grep {grep}: {error}") from None


def _is_past(ms: int | None) -> bool:
    return ms is not None and ms <= _now_ms()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _start(
    found: LogRange, begin: str | int | None, until_ms: int | None, last: int | None, wants: Matches
) -> str:
    """Return the cursor for --from TIME or --last; report a log that begins later."""
    if last is not None:
        high = None if until_ms is None else found.page_at(until_ms)
        entries = found.last(last, wants, high)
        return before(entries[0]) if entries else found.end
    if not isinstance(begin, int):
        if begin is None or len(begin) <= DECIMAL_MAX:
            raise click.UsageError("a past --until needs --last, or a --from in the log")
        return begin
    page = found.page_at(begin)
    if begin and page == found.floor > 1:
        click.echo("** the log begins later; `--from 0` shows the current state", err=True)
    return found.cursor_at(page)


def _show_past(
    found: LogRange, cursor: str, until_ms: int, wants: Matches, printer: _Printer
) -> None:
    for entry in filter(wants, found.until(cursor, until_ms)):
        if printer.is_done:
            break
        printer.show(Event(entry["id"], entry["event"], entry["data"]))


def _follow(feed: Access, options: dict[str, Any], until_ms: int | None, printer: _Printer) -> None:
    from tidings.client.consumer import Consumer

    stopped = threading.Event()
    stop_on_signals(stopped.set, within_s=PRINT_S)
    options |= {"feed": feed.feed, **feed.access}
    with (
        render.failures(usage=WrongUrl),
        Consumer(feed.url, **options, on_lost=render.retry_reporter()) as consumer,
    ):
        while not (stopped.is_set() or consumer.ended or printer.is_done or _is_past(until_ms)):
            delivery = consumer.within(LOOK_EVERY_S)
            if delivery is not None:
                printer.show(delivery.event)
                delivery.ack()


class _Printer:
    """Prints events as lines of *line*, at most *count*, and remarks about copies."""

    def __init__(self, line: Line, grep: re.Pattern[str] | None, count: int | None) -> None:
        self._line, self._grep, self._left, self._count = line, grep, count, count
        self._copied: int | None = None  # the objects of the copy that arrives
        self.is_done = False

    def show(self, event: Event) -> None:
        if not event.is_operation:
            self._remark(event)
            if self._line is not machine:
                return
        elif self._copied is not None:
            self._copied += 1
        if self._grep is not None and not self._grep.search(plain(event)):
            return
        click.echo(self._line(event))
        if self._left and event.is_operation:
            self._left -= 1
            self.is_done |= self._left == 0

    def _remark(self, event: Event) -> None:
        if event.name == RESET:
            self._copied = 0
            text = "** reset: the current state follows, then changes"
        else:
            if self._copied is None:
                return
            number = f"{self._copied:,} object{'' if self._copied == 1 else 's'}"
            text = f"** live: that was the current state, {number}; changes follow"
            if self._left:
                text = f"** live: the current state has {number}, so --count ends here"
                self.is_done = True
            self._copied = None
        if self._line is not machine:
            click.echo(f"{click.style(text, bold=True)}  {event.id}", err=True)


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
        report = render.retry_reporter()
        without_s = time.monotonic()  # since when no attempt to register was successful
        for signal in listener:
            if isinstance(signal, Ended):
                lost = Lost(signal.reason)
                if signal.refused or is_over(without_s, signal.delay_s, feed.timeout_s):
                    raise lost
                report(lost, signal.delay_s)
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
