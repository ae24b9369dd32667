"""`tidings verify` and `rebuild`: find and repair differences between a state and its log."""

from __future__ import annotations

import json
from collections.abc import Collection

import click
from rich.progress import Progress

from tidings.admin import findings
from tidings.admin.examining import ALL, archive_option, buckets_of, examine, run_over
from tidings.admin.findings import Findings
from tidings.admin.state_target import Examined, examined_options, tables_option
from tidings.client.cli.main import EXIT_CODES
from tidings.core import limits
from tidings.core.maintenance.rebuild import Rebuilder, Repaired
from tidings.core.state.rows import Difference
from tidings.core.sync import safety
from tidings.server.sqlite.log import Numbers

DIFFERENT, STOPPED = 3, 3


@click.command(epilog=f"{EXIT_CODES[:-1]}, {DIFFERENT} differences.")
@examined_options
@tables_option
@archive_option
@click.option("--buckets", callback=buckets_of, default=ALL, show_default=True, help="Only these.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a difference, then a sum.")
@click.pass_context
def verify(
    ctx: click.Context,
    target: Examined,
    archive: str | None,
    buckets: Collection[int],
    as_json: bool,
) -> None:
    """
    Compare the state of a feed with its log, and name every object that differs.

    Nothing is changed, and the feed may go on meanwhile. What is older than the log is counted, or
    compared with the archive.

    \b
    Examples:
      tidings verify --stage dev
      tidings verify --stage prod --archive
      tidings verify --endpoint-url http://127.0.0.1:8044 --buckets 0-7 --json
      tidings verify --data tidings-data         of a server that was stopped
    """
    unwritten = target.unwritten()
    with run_over(target, buckets, archive) as (verifier, progress):
        result = examine(verifier, progress, _print if as_json else None)
    if as_json:
        click.echo(json.dumps(findings.as_json(result, target.feed, verifier.floor)))
    else:
        findings.show(result, target.feed, verifier.floor)
    for numbers in unwritten:
        remedy = "start the server or run `tidings rebuild`"
        click.echo(f"{_unwritten(target, numbers)}; {remedy}", err=True)
    if result.differences or unwritten:
        ctx.exit(DIFFERENT)


def _unwritten(target: Examined, numbers: Numbers) -> str:
    head = target.reader().log.head(target.feed)
    return f"{target.feed}: {numbers} (head {head}) was taken by a killed process and not written"


def _print(difference: Difference) -> None:
    click.echo(json.dumps(findings.difference_as_json(difference)))


@click.command(epilog=f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard.")
@examined_options
@tables_option
@archive_option
@click.option("--dry-run", is_flag=True, help="Only say what would be put right.")
@click.option(
    "--max-alien-share",
    type=click.FloatRange(0, 1),
    default=safety.ALIEN_SHARE_MAX,
    show_default=True,
    help="Stop where the log knows nothing of a larger share of the rows.",
)
@click.option("--json", "as_json", is_flag=True, help="The summary as one line of JSON.")
@click.pass_context
def rebuild(
    ctx: click.Context,
    target: Examined,
    archive: str | None,
    dry_run: bool,
    max_alien_share: float,
    as_json: bool,
) -> None:
    """
    Rebuild the state of a feed from its log: put right what `tidings verify` finds.

    In the file of a server, also fill page numbers that a killed process did not write.

    The feed may go on meanwhile: a row that changes is left to whoever changed it. Rows that are
    older than the log are kept as they are, or put right by the archive.

    \b
    Examples:
      tidings rebuild --stage dev --dry-run
      tidings rebuild --stage prod --archive
      tidings rebuild --endpoint-url http://127.0.0.1:8044
      tidings rebuild --data tidings-data
    """
    for numbers in target.unwritten() if dry_run else target.fill():
        click.echo(f"{_unwritten(target, numbers)}{'' if dry_run else '; filled'}", err=True)
    with run_over(target, range(limits.BUCKETS), archive) as (verifier, progress):
        result = examine(verifier, progress)
        objection = safety.check_rebuild(result.aliens, result.rows, share_max=max_alien_share)
        done = None
        if objection is None and not dry_run:
            done = _repair(Rebuilder(verifier, target.states()), result, progress)
    _show(result, done, target.feed, verifier.floor, as_json)
    if objection is not None:
        click.echo(f"Stopped: {objection.sentence}.", err=True)
        ctx.exit(STOPPED)


def _repair(rebuilder: Rebuilder, result: Findings, progress: Progress) -> Repaired:
    total = Repaired(0, 0)
    for bucket in progress.track(result.differing, description="repairing"):
        total += rebuilder.repair(bucket)
    return total


def _show(result: Findings, done: Repaired | None, feed: str, floor: int, as_json: bool) -> None:
    counts = {} if done is None else {"repaired": done.repaired, "moved": done.moved}
    if as_json:
        click.echo(json.dumps(findings.as_json(result, feed, floor) | counts))
        return
    findings.show(result, feed, floor)
    if done is not None and result.differences:
        click.echo(f"Repaired {done.repaired:,}; {done.moved:,} changed meanwhile.")
