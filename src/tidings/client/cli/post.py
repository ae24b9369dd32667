"""`tidings post`: post one operation from the command line, or many from a file or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES, discard_output
from tidings.client.cli.options import Access, access_options
from tidings.client.errors import Refused, WrongUrl
from tidings.core.model.operations import decode

if TYPE_CHECKING:
    from tidings.client.poster import Batch, Poster

_EVENTS = ("insert", "update", "delete")


@click.command(epilog=EXIT_CODES)
@access_options
@click.option(
    "--parent", "parents", multiple=True, metavar="P", help="Parent of the object; repeatable."
)
@click.option("--timestamp", metavar="TIME", help="Time of the change, RFC 3339.  [default: now]")
@click.option("--data", metavar="JSON", help="Any JSON value to send with the operation.")
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="F",
    help="Post the operations in this file, one JSON object per line.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the event ids as JSON.")
@click.argument("operation", nargs=-1, metavar="[EVENT TYPE ID | -]")
def post(
    feed: Access,
    parents: tuple[str, ...],
    timestamp: str | None,
    data: str | None,
    file: BinaryIO | None,
    as_json: bool,
    operation: tuple[str, ...],
) -> None:
    """Post an operation: EVENT (insert, update or delete) happened to the object TYPE ID.

    With `-` or --file, operations are read from stdin or a file, one JSON object per line, and
    posted in batches of 500. Each batch is appended once, even if it is sent again. If a batch is
    refused, the earlier batches have been posted, and the later batches are not posted.

    \b
    Examples:
      tidings post insert video x32 --parent channel/7
      tidings post delete video x32 --timestamp 2026-11-20T17:19:10Z
      echo '{"event":"update","type":"video","id":"x32"}' | tidings post -
      tidings post --file operations.ndjson --json
    """
    source = sys.stdin.buffer if operation == ("-",) else file
    if source and (operation not in ((), ("-",)) or (file and operation)):
        raise click.UsageError("give either one operation, or `-`, or --file")
    if source and (parents or timestamp or data):
        raise click.UsageError("give --parent, --timestamp and --data only with EVENT TYPE ID")
    single = None if source else _operation(operation, parents, timestamp, data)
    with render.failures(usage=WrongUrl):
        from tidings.client.poster import Poster

        with Poster(feed.url, feed.feed, **feed.access, on_retry=render.retry_reporter()) as poster:
            if single is not None:
                _post_one(poster, single, as_json)
            elif source:
                _post_file(poster, source, as_json)


def _operation(
    words: tuple[str, ...], parents: tuple[str, ...], timestamp: str | None, data: str | None
) -> dict[str, Any]:
    if len(words) != 3:
        raise click.UsageError("give the three words EVENT TYPE ID, or `-`, or --file")
    event, kind, object_id = words
    if event.lower() not in _EVENTS:
        raise click.UsageError(f"EVENT must be one of {', '.join(_EVENTS)}, not {event!r}")
    operation: dict[str, Any] = {"event": event, "type": kind, "id": object_id}
    if parents:
        operation["parents"] = list(parents)
    if timestamp:
        operation["timestamp"] = timestamp
    if data:
        try:
            operation["data"] = decode(data)
        except ValueError as error:
            raise click.UsageError(f"--data is not JSON: {error}") from None
    return operation


def _post_one(poster: Poster, operation: dict[str, Any], as_json: bool) -> None:
    ids = poster.post([operation])
    done = f"{operation['event'].lower()} {operation['type']}/{operation['id']}"
    line = f"{render.printable(done)}  {' '.join(ids)}"
    _report(render.compact({"ids": ids}) if as_json else line, 1, "")


def _report(line: str, posted: int, rest: str) -> None:
    """Print *line*. If that fails, report the number of posted operations and the *rest*."""
    try:
        click.echo(line)
    except OSError as error:
        discard_output()
        if not rest and isinstance(error, BrokenPipeError):
            return
        rule = f"the output cannot be written: {error.strerror}"
        raise click.ClickException(f"{rule}; {_count(posted)} posted{rest}") from None


def _count(posted: int) -> str:
    return f"{posted:,} operation{'' if posted == 1 else 's'}"


def _post_file(poster: Poster, file: BinaryIO, as_json: bool) -> None:
    from tidings.client.poster import read_batches

    posted = 0
    with _progress(file) as advance:
        try:
            for batch in read_batches(file):
                if batch.lines:
                    ids = _post_batch(poster, batch)
                    posted += len(batch.lines)
                    if as_json:
                        _report(render.compact({"ids": ids}), posted, ", the rest was not")
                advance(batch.read_bytes)
        except OSError as error:
            raise click.ClickException(f"cannot read {file.name}: {error.strerror}") from None
        except Refused as error:
            raise Refused(
                f"{error.message} ({posted} operations before this batch were posted)",
                status=error.status,
                code=error.code,
            ) from None
    if not as_json:
        _report(f"posted {_count(posted)}", posted, "")


def _post_batch(poster: Poster, batch: Batch) -> list[str]:
    """Post *batch*. In errors, replace line numbers of the batch by line numbers of the input."""
    from tidings.client.poster import LINE_OF_BODY

    try:
        return poster.post_lines(batch.lines)
    except Refused as error:
        position = LINE_OF_BODY.match(error.message)
        if position is None or not 1 <= int(position[1]) <= len(batch.numbers):
            where = f"lines {batch.numbers[0]} to {batch.numbers[-1]}: "
            raise Refused(where + error.message, status=error.status, code=error.code) from None
        number = batch.numbers[int(position[1]) - 1]
        message = f"line {number}: {error.message[position.end() :]}"
        raise Refused(message, status=error.status, code=error.code) from None


@contextmanager
def _progress(file: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. For a pipe, show only the size that was read so far."""
    if not sys.stderr.isatty() or file.isatty():
        yield lambda read_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("posting"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("posting", total=_size(file))
        yield lambda read_bytes: progress.advance(task, read_bytes)


def _size(file: BinaryIO) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size or None
