"""Print events, errors, and answers as JSON or as tables."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidings.client.errors import AccessDenied, ClientError, Lost, Unreachable
from tidings.client.events import Event
from tidings.core.model.operations import to_ascii_json, to_canonical_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.table import Table

NONE = "none"
SOURCE = "tidings.source"  # the key, in click's context, of the source of the feed's address
DEFAULT_SOURCE = "the default"
HAS_PASSWORD = "tidings.has_password"  # the key of False if the command has no password
_GIVEN = ("-", "URL")  # how the sources begin that the user has just typed
_NO_PASSWORD_SET = "no_password_set"
_MINUTE_MS = 60_000
_WIDE = 100_000  # columns of a pipe or file, so that no cell is truncated or wrapped
# Events may contain any characters. Control characters could change the terminal, and direction
# marks could reverse the line.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
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

    result = Table()
    for name in columns:
        values = {type(row.get(name, "")) for row in rows}
        is_number = int in values and values <= {int, type(None)}
        result.add_column(without_unit(name), justify="right" if is_number else "left")
    for row in rows:
        result.add_row(*(Text(cell(row.get(name, ""), of=name)) for name in columns))
    return result


def rows(
    answers: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    empty: str,
    row: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
) -> Table | str:
    """Return a table with a *row* for each of *answers*, or *empty* without answers."""
    if not answers:
        return empty
    return table(columns, [dict.fromkeys(columns) | row(each) for each in answers])


def labelled(values: Iterable[tuple[str, str]], width: int) -> str:
    """Return a line for each label and value; the labels have *width* characters."""
    return "\n".join(f"{label:<{width}} {value}" for label, value in values)


def show(shown: RenderableType) -> None:
    """Print a table, or a text as it is.

    On a terminal, the output has the width of the terminal. If a word of a table does not fit, each
    row is printed as a block of lines. In a pipe or file, a table has no lines or colours, and
    nothing is truncated or wrapped.
    """
    if isinstance(shown, str):
        click.echo(shown)
        return
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console(highlight=False)
        console.print(_fitting(shown, console))
        return
    console = Console(highlight=False, width=_WIDE, color_system=None, no_color=True)
    with console.capture() as captured:
        for part in _parts(shown):
            console.print(_bare(part))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _parts(shown: RenderableType) -> Iterator[RenderableType]:
    """Yield the parts of *shown*; titles and captions are parts, which may be wider than tables."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    for part in shown.renderables if isinstance(shown, Group) else [shown]:
        caption = None
        if isinstance(part, Table):
            if part.title is not None:
                yield Text(str(part.title))
            part, caption = copy(part), part.caption
            part.title = part.caption = None
        yield part
        if caption is not None:
            yield Text(str(caption))


def _bare(part: RenderableType) -> RenderableType:
    """Return a table without lines; return anything else unchanged."""
    from rich.table import Table

    if isinstance(part, Table):
        part.box, part.pad_edge, part.expand = None, False, False
        part.padding = (0, 2, 0, 0)
    return part


def _fitting(shown: RenderableType, console: Console) -> RenderableType:
    """Return *shown* with a block of lines per row for each table that would break words."""
    from rich.console import Group
    from rich.table import Table

    unlimited = console.options.update(max_width=_WIDE)

    def is_wider(part: RenderableType) -> bool:
        return console.measure(part, options=unlimited).minimum > console.width

    return Group(
        *(
            _blocks(part) if isinstance(part, Table) and is_wider(part) else part
            for part in _parts(shown)
        )
    )


def _blocks(table: Table) -> RenderableType:
    """Return the rows of *table* as blocks of lines with the name and value of each cell."""
    from rich.console import Group
    from rich.text import Text

    names = [str(column.header) for column in table.columns]
    width = max(map(len, names))
    cells = [list(column.cells) for column in table.columns]
    lines: list[Text] = []
    for number in range(table.row_count):
        if lines:
            lines.append(Text())
        for name, column in zip(names, cells, strict=True):
            value = Text(f"{name:<{width}}  ").append_text(Text(str(column[number])))
            value.overflow = "fold"
            lines.append(value)
    return Group(*lines)


def watch(shown: Callable[[], RenderableType], every_s: float) -> NoReturn:
    """Show the result of *shown* repeatedly, each time in place of the previous result."""
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            live.update(_fitting(shown(), live.console), refresh=True)
            time.sleep(every_s)


def phase_bars(*, silent: bool = False) -> Progress:
    """Return a progress display with a bar per phase.

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
        raise click.UsageError(f"{error}{source_of(is_unreachable=False)}") from None
    except ClientError as error:
        source = source_of(is_unreachable=isinstance(error, Unreachable))
        raise click.ClickException(f"{printable(str(error))}{_remedy(error)}{source}") from None


def retry_reporter() -> Callable[[Lost, float], None]:
    """Return a function that reports a lost connection and the time of the next attempt.

    Any thread may call it.
    """
    source = source_of(is_unreachable=True)

    def report(lost: Lost, delay_s: float) -> None:
        at = source if isinstance(lost, Unreachable) else ""
        click.echo(f"{printable(lost.reason)}{at}; trying again in {delay_s:.0f} s", err=True)

    return report


def fields(document: Mapping[str, Any]) -> str:
    """Return a line for each field of *document*; values that are not texts are JSON."""
    shown = {
        name: value if isinstance(value, str) else to_canonical_json(value)
        for name, value in document.items()
    }
    width = max(map(len, shown), default=0)
    return labelled(((printable(name), printable(text)) for name, text in shown.items()), width + 1)


def answer(document: object, line: str, *, as_json: bool) -> None:
    """Print *document* as JSON, or *line* for a person."""
    click.echo(compact(document) if as_json else line)


def _remedy(error: ClientError) -> str:
    """Return the remedy for a missing password; "" for other errors."""
    context = click.get_current_context(silent=True)
    if context is None or context.meta.get(HAS_PASSWORD, True):
        return ""
    if not isinstance(error, AccessDenied) or error.code == _NO_PASSWORD_SET:
        return ""
    return "; give it with --password-file, TIDINGS_PASSWORD or `tidings context set`"


def source_of(*, is_unreachable: bool) -> str:
    """Return the source of the address for an error; "" if the user typed the address.

    The default address is named only if the server *is_unreachable*.
    """
    context = click.get_current_context(silent=True)
    source = context.meta.get(SOURCE, "") if context else ""
    if source == DEFAULT_SOURCE:
        rule = " (default address; set --url, TIDINGS_URL or a context)"
        return rule if is_unreachable else ""
    return "" if not source or source.startswith(_GIVEN) else f" (address from {source})"


def printable(text: str) -> str:
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
    return "\n".join(f"{label:<10}: {printable(str(value))}" for label, value in fields.items())


def duration(ms: int) -> str:
    """Return *ms* with its two largest units, for a person: `18 min 9 s`."""
    if ms < _MINUTE_MS:
        return f"{ms:,} ms" if abs(ms) < 1000 else f"{ms / 1000:.1f} s"
    whole, larger = divmod(ms // 1000, 60), ("min", "s")
    for size, unit in ((60, "h"), (24, "d")):
        if whole[0] >= size:
            whole, larger = divmod(whole[0], size), (unit, larger[0])
    return " ".join(f"{number} {unit}" for number, unit in zip(whole, larger, strict=True))


def without_unit(name: str) -> str:
    """Return the name of a field; a `lag_ms` is shown as a duration, so it is `lag`."""
    return name.removesuffix("_ago").removesuffix("_ms")


def cell(value: object, missing: str = NONE, of: str = "") -> str:
    """Return a value of the field *of* an answer as text; return *missing* for None."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if without_unit(of) == of else duration(value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(name)} {cell(part, missing)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(cell(part, missing) for part in value)
    return printable(str(value))


def minute(time: str | None) -> str:
    """Return *time* as `2026-11-20 17:19Z`; "" for None."""
    return f"{time[:10]} {time[11:16]}Z" if time else ""


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
