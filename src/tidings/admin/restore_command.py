"""`tidings restore`: resume a feed from tables that were restored to an earlier point in time."""

from __future__ import annotations

import json

import click

from tidings.admin.archive_command import page_of, store_at, url_of
from tidings.admin.restored_tables import complete
from tidings.admin.state_target import StateTarget, state_options
from tidings.aws.config.stages import table_name
from tidings.aws.effects import new_runtime
from tidings.client.cli.main import EXIT_CODES
from tidings.core.archive.segments import ArchiveStore
from tidings.core.counters import RESTORED
from tidings.core.errors import UnknownFeed
from tidings.core.maintenance.restore import Plan, Restored, Restorer, Rewinder
from tidings.core.model.feeds import public_name


@click.command(epilog=EXIT_CODES)
@state_options
@click.option(
    "--heard",
    "last_page",
    metavar="ID|PAGE",
    callback=lambda ctx, param, text: None if text is None else page_of(text),
    help="Last event or page that a client received.  [default: the last page possibly sent]",
)
@click.option(
    "--archive",
    metavar="URL|FOLDER",
    help="Archive of the feed; lost pages are removed.  [default: the archive of the stage]",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def restore(
    target: StateTarget, last_page: int | None, archive: str | None, dry_run: bool, as_json: bool
) -> None:
    """Resume a feed after its tables were restored to an earlier time.

    Run this command before clients use the restored tables. The restored log is kept. Later page
    numbers that clients may have received are never assigned again; clients that received such
    pages get a new copy of everything. If the command is killed, run it again. Afterwards, repair
    the state with `tidings rebuild`.

    With --tables, the restored tables get the deletion protection, tags and other settings of the
    stage's template, and the stage's own tables refuse posts; clients repeat them. To use
    these tables again instead of the restored ones, run the command without --tables.

    \b
    Examples:
      tidings restore --stage prod --tables 2 --dry-run
      tidings restore --stage prod --tables 2 --heard 6553f100000000000c000003
      tidings restore --endpoint-url http://127.0.0.1:8044
    """
    if target.feed in target.settings.sources:
        raise click.ClickException(
            f"{target.name} is a copy: restore nothing; copy it again with `tidings relays reset`"
        )
    restorer = _restorer(target, archive)
    assigned = _end_of_used(target, fence=not dry_run)
    if last_page is None and assigned >= restorer.reader.log.head(target.feed):
        last_page = assigned or None  # a smaller head is damaged
    plan = restorer.plan(target.feed, last_page, assigned=assigned)
    done = None if dry_run else restorer.restore(target.feed, plan)
    if target.used and not dry_run:
        stage, log = target.settings.stage, target.settings.log_table
        complete(stage, log.removeprefix(table_name(stage, "log", "")), target.client)
    click.echo(json.dumps(_as_json(target.feed, plan, done)) if as_json else _as_text(plan, done))


def _end_of_used(target: StateTarget, *, fence: bool) -> int:
    """Return the last number that the stage's own tables have assigned; 0 if this is unknown.

    With *fence*, they assign no more numbers. So no operation is acknowledged that the restored
    tables lack, under a number that they assign again.
    """
    if target.used is None:
        return 0
    used = StateTarget(target.name, target.client, target.used)
    try:
        if fence:
            used.stores.log.yield_to(used.feed, RESTORED)
        return used.stores.log.head(used.feed)
    except UnknownFeed:
        return 0
    except target.client.exceptions.ResourceNotFoundException:
        return 0  # a deleted table assigns no numbers


def _restorer(target: StateTarget, archive: str | None) -> Restorer:
    runtime, stores = new_runtime(target.settings), target.stores
    return Restorer(
        reader=target.reader(),
        numbers=stores.numbers,
        profiles=stores.profiles,
        archive=_archive(target, archive),
        rewinder=Rewinder(stores.followers, stores.consumers, runtime),
        runtime=runtime,
    )


def _archive(target: StateTarget, named: str | None) -> ArchiveStore | None:
    if not named and not target.settings.archive:
        return None
    return store_at(url_of(named or "", target))


def _as_json(feed: str, plan: Plan, done: Restored | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "feed": public_name(feed),
        "kept": plan.kept.page,
        "lost": list(plan.lost),
    }
    if done is None:
        return fields
    names = {"followers": done.followers, "consumers": done.consumers}
    return fields | {**names, "parts": done.parts}


def _as_text(plan: Plan, done: Restored | None) -> str:
    first, last = plan.lost
    lines = [f"The log is kept up to page {plan.kept.page}; it continues after page {plan.end}."]
    if first <= last:
        lines.append(f"Clients that received pages {first} to {last} get a new copy of everything.")
    if done is not None:
        lines.append(f"Followers moved back: {', '.join(done.followers) or 'none'}.")
        lines.append(f"Consumers moved back: {', '.join(done.consumers) or 'none'}.")
        lines.append(f"Parts of the archive that were cut: {done.parts}.")
    return "\n".join(lines)
