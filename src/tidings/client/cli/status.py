"""`tidings status`: show the status of a feed, once or repeatedly."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidings.client.address import status_url
from tidings.client.cli import render
from tidings.client.cli.main import CHECK_CODES, FOUND
from tidings.client.cli.options import address_options, json_option
from tidings.client.errors import ClientError, WrongUrl

if TYPE_CHECKING:
    from rich.console import Group

EVERY_S = 2.0  # the interval of --watch; the server caches a report for a second
PATIENCE_S = 10.0  # timeout of a request, enough for a cold start and a slow store
OK = "OK"
_STYLES = {OK: "bold green", "LAGGING": "bold yellow"}
_FIRST = ("status", "head", "lag", "clients", "problems")
_FOLLOWERS = ("name", "checkpoint", "lag_pages", "lag_ms", "leased")


@dataclass(frozen=True, slots=True)
class Report:
    """An answer of the server; if it is missing or not a report, *problem* is the reason."""

    fields: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_ok(self) -> bool:
        return not self.problem and self.fields.get("status") == OK


@click.command(epilog=CHECK_CODES)
@address_options
@json_option
@click.option(
    "--watch", is_flag=True, help=f"Show the status every {EVERY_S:.0f} seconds, until Ctrl-C."
)
@click.pass_context
def status(
    ctx: click.Context, url: str, feed: str, timeout_s: float | None, as_json: bool, watch: bool
) -> None:
    """Show the status of a feed: its traffic, its connections and the lag of its followers.

    The exit code is 3 if the feed lags or has lost a page, and 1 if it does not answer. No password
    is needed.

    \b
    Examples:
      tidings status                          the feed main on this machine
      tidings status --feed videos --watch    the feed videos, every 2 seconds
      tidings status --json | jq .clients     one number for a script
    """
    with render.failures(usage=WrongUrl):
        address = status_url(url, feed)
    try:
        most_s = timeout_s or PATIENCE_S
        report = _watch(address, as_json, most_s) if watch else _once(address, as_json, most_s)
    except KeyboardInterrupt:  # Ctrl-C ends --watch
        return
    if not report.is_ok:
        ctx.exit(1 if report.problem else FOUND)


def _once(address: str, as_json: bool, most_s: float) -> Report:
    report = fetch(address, most_s)
    if report.fields and as_json:
        click.echo(render.compact(report.fields))
    elif report.fields:
        render.show(render_report(report))
    if report.problem:
        source = render.source_of(is_unreachable=True)
        click.echo(f"Error: {report.problem}{source}", err=True)
    return report


def _watch(address: str, as_json: bool, most_s: float) -> NoReturn:
    if not as_json:
        render.watch(lambda: render_report(fetch(address, most_s)), EVERY_S)
    while True:
        _once(address, as_json, most_s)
        time.sleep(EVERY_S)


def fetch(address: str, timeout_s: float = PATIENCE_S) -> Report:
    """Return the report at *address*, or a report that only has a problem."""
    import httpx

    from tidings.client.feed_api import connecting, translate_errors
    from tidings.client.retries import error_of_answer, via

    try:
        with translate_errors(address):
            answer = httpx.get(address, timeout=timeout_s, **connecting(address))
        fields = answer.json()
    except ClientError as error:
        return Report(problem=render.printable(str(error)))
    except ValueError:
        rule = f"{address} answered {answer.status_code} without JSON{via(address)}"
        return Report(problem=render.printable(rule))
    if not isinstance(fields, dict) or "status" not in fields:
        refusal = error_of_answer(answer)
        return Report(problem=render.printable(str(refusal)))
    return Report(fields)


def render_report(report: Report) -> Group:
    """Return the report for a person: status, head, lag, clients and problems, then the rest."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    fields = Table.grid(padding=(0, 2))
    found = report.fields.get("followers")
    followers = [each for each in found if isinstance(each, dict)] if found else []
    late = "; ".join(_lag(each) for each in followers if each.get("lag_pages"))
    first = dict.fromkeys(_FIRST) | {"lag": late or render.NONE, "problems": render.NONE}
    for name, value in (first | report.fields if report.fields else {}).items():
        style = _STYLES.get(str(value), "bold red") if name == "status" else ""
        if name != "followers":
            text = render.cell(value, missing="unknown")
            fields.add_row(Text(render.printable(name), style="dim"), Text(text, style=style))
    parts: list[Table | Text] = [fields] if report.fields else []
    if followers:
        parts.append(render.table(_FOLLOWERS, followers))
    if report.problem:
        parts.append(Text(report.problem, style="red"))
    return Group(*parts)


def _lag(follower: dict[str, Any]) -> str:
    pages, ms = (render.cell(follower.get(name), of=name) for name in ("lag_pages", "lag_ms"))
    return f"{render.cell(follower.get('name'))} {pages} pages, {ms}"
