"""`tidings rebuild`: rows of the state that are not as the log says are put right."""

from __future__ import annotations

import json

import click
from rich.progress import Progress
from tidings.client.cli.main import EXIT_CODES
from tidings.core import limits
from tidings.core.maintenance.rebuild import Rebuilder, Repaired
from tidings.core.sync import safety
from tidings.operate import findings
from tidings.operate.examining import archive_option, examine, run_over
from tidings.operate.findings import Findings
from tidings.operate.state_target import Examined, examined_options, tables_option

STOPPED = 3
_EVERY = range(limits.BUCKETS)


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

    The feed may go on meanwhile: a row that changes is left to whoever changed it. Rows that are
    older than the log are kept as they are, or put right by the archive.

    \b
    Examples:
      tidings rebuild --stage dev --dry-run
      tidings rebuild --stage prod --archive
      tidings rebuild --endpoint-url http://127.0.0.1:8044
      tidings rebuild --data tidings-data
    """
    with run_over(target, _EVERY, archive) as (verifier, progress):
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
