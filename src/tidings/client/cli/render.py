"""Print events, errors, and answers as JSON or as tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidings.client.errors import ClientError, Lost
from tidings.client.events import Event
from tidings.core.model.operations import to_ascii_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}
NONE = "none"
_NAME_CHARS = len("insert")
# Events may contain any characters. Control characters could change the terminal, and direction
# marks could reverse the line.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def human(event: Event) -> str:
    """Return `2026-11-20 17:19:10Z  insert  video/x32  [channel/7]  <id>`, or `** reset  <id>`."""
    if not event.is_operation:
        return f"{click.style(f'** {event.name}', bold=True)}  {_faint(event.id)}"
    name = plain(event.name).ljust(_NAME_CHARS)
    parents = event.data.get("parents") or []
    return "  ".join(
        part
        for part in (
            _faint(_moment(event.data.get("timestamp"))),
            click.style(name, fg=_COLOURS.get(event.name, "cyan")),
            plain(f"{event.data.get('type', '?')}/{event.data.get('id', '?')}"),
            plain(f"[{', '.join(map(str, parents))}]")
            if isinstance(parents, list) and parents
            else "",
            _faint(event.id),
        )
        if part
    )


def machine(event: Event) -> str:
    """Return `{"id":...,"event":...,"data":{...}}`, in ASCII, which every program can read."""
    return compact({"id": event.id, "event": event.name, "data": event.data})


def compact(value: object) -> str:
    """Return *value* as one line of JSON."""
    return to_ascii_json(value)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of *rows*. Missing values are empty. Brackets in a text are not markup."""
    from rich.table import Table
    from rich.text import Text

    result = Table(*columns)
    for row in rows:
        result.add_row(*(Text(cell(row.get(name, ""))) for name in columns))
    return result


def show_list(
    answers: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    empty: str,
    row: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Print *answers* as JSON, or as a table with a *row* for each; print *empty* for no answer."""
    if as_json:
        click.echo(compact(answers))
    elif not answers:
        click.echo(empty)
    else:
        show(table(columns, [dict.fromkeys(columns) | row(each) for each in answers]))


def show(shown: RenderableType) -> None:
    """Print a table or a text, in the width of the terminal."""
    from rich.console import Console

    Console(highlight=False).print(shown)


def watch(shown: Callable[[], RenderableType], every_s: float) -> NoReturn:
    """Show the result of *shown* repeatedly, each time in place of the previous result."""
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            live.update(shown(), refresh=True)
            time.sleep(every_s)


def phase_bars(*, silent: bool = False) -> Progress:
    """
    Return a progress display with a bar per phase.

    The display is shown only if stderr is a terminal, and never if *silent*.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<18}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=silent or not console.is_terminal,
    )


@contextmanager
def failures(*, usage: type[ClientError] | tuple[()] = ()) -> Iterator[None]:
    """Report a client error in one line: with exit code 2 for the types *usage*, otherwise 1."""
    try:
        yield
    except usage as error:
        raise click.UsageError(str(error)) from None
    except ClientError as error:
        raise click.ClickException(plain(str(error))) from None


def retrying(lost: Lost, delay_s: float) -> None:
    """Report a lost connection and the time of the next attempt."""
    click.echo(f"{plain(lost.reason)}; trying again in {delay_s:.0f} s", err=True)


def plain(text: str) -> str:
    """Return *text* with control and direction characters escaped."""
    return _UNPRINTABLE.sub(_escape, text)


def describe_entry(entry: dict[str, Any]) -> str:
    """Return the fields of *entry*, an operation of the log, as labelled lines."""
    data = entry["data"]
    fields = {
        "offset": entry["id"],
        "timestamp": data.get("timestamp", ""),
        "op": entry["event"].upper(),
        "key": f"{data.get('type', '')}/{data.get('id', '')}",
        "value": compact(data),
    }
    return "\n".join(f"{label:<10}: {plain(str(value))}" for label, value in fields.items())


def cell(value: object, missing: str = NONE) -> str:
    """Return a value of an answer as text, for a table or a line; return *missing* for None."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{plain(name)} {cell(part, missing)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(cell(part, missing) for part in value)
    return plain(str(value))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def _faint(text: str) -> str:
    return click.style(plain(text), dim=True)


def _moment(timestamp: object) -> str:
    """Return *timestamp* to the second, with a fixed width: `2026-11-20 17:19:10Z`."""
    text = str(timestamp or "")
    return f"{text[:10]} {text[11:19]}Z" if len(text) >= len("2026-11-20T17:19:10Z") else text
