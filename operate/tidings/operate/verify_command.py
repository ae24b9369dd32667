"""`tidings verify`: whether the state of a feed is the fold of its log."""

from __future__ import annotations

import json
from collections.abc import Collection

import click
from tidings.client.cli.main import EXIT_CODES
from tidings.core.state.differences import Difference
from tidings.operate import findings
from tidings.operate.examining import ALL, archive_option, buckets_of, examine, run_over
from tidings.operate.state_target import Examined, examined_options, tables_option

DIFFERENT = 3


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
    with run_over(target, buckets, archive) as (verifier, progress):
        result = examine(verifier, progress, _print if as_json else None)
    if as_json:
        click.echo(json.dumps(findings.as_json(result, target.feed, verifier.floor)))
    else:
        findings.show(result, target.feed, verifier.floor)
    if result.differences:
        ctx.exit(DIFFERENT)


def _print(difference: Difference) -> None:
    click.echo(json.dumps(findings.difference_as_json(difference)))
