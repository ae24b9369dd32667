"""The command `tidings sync`, which makes a feed agree with a dump of the real data.

`tidings sync approve` and `tidings sync reject` answer a plan that waits for approval.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.client.address import from_text
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import NamedFeed, json_option, named_feed_options
from tidings.client.cli.render import answer as print_answer
from tidings.core.sync import workflow
from tidings.core.version import how_to_install
from tidings.http.outbound.files import copy_folder
from tidings.lineage import datasets
from tidings.lineage.runs import lineage_option
from tidings.sync import files
from tidings.sync.cli import (
    Lineage,
    Outcome,
    Phases,
    delete_share_option,
    failures,
    open_feed,
    refusals,
    report_sync,
)

if TYPE_CHECKING:
    from tidings.sync.feed import Applied, Feed
    from tidings.sync.job import Summary, SyncOptions
    from tidings.sync.stage import Machine


# The codes of S3 for a missing object. The code is AccessDenied if the caller may not list the
# bucket.
_MISSING = ("NoSuchKey", "AccessDenied")
# The codes of Step Functions for the token of a task that no longer waits.
_OVER = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


class NotWaiting(Exception):
    """The sync does not exist, does not wait for an answer, or already has an answer."""


def _answering(name: str, *, approved: bool, help: str) -> click.Command:
    shown = f"{help}\n\n\b\nExample:\n  tidings sync {name} 20261120T171910-1f3ac0de --stage prod"

    @click.command(name, help=shown, epilog=EXIT_CODES)
    @click.argument("id")
    @click.option("--stage", required=True, help="Deployed stage of the feed: dev, staging, prod.")
    @json_option
    def command(id: str, stage: str, as_json: bool) -> None:
        _answer(id, stage, approved)
        line = f"{'approved' if approved else 'rejected'}: {id}"
        print_answer({"id": id, "approved": approved}, line, as_json=as_json)

    return command


def _answer(id: str, stage: str, approved: bool) -> None:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 caught at the edge

    from tidings.aws.config import stages
    from tidings.sync.stage import client

    try:
        answer(
            id,
            approved=approved,
            bucket=stages.syncs_of(stage, client("cloudformation")).bucket,
            objects=client("s3"),
            machines=client("stepfunctions"),
        )
    except (stages.NoStage, NotWaiting, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None


def answer(id: str, *, approved: bool, bucket: str, objects: Any, machines: Any) -> None:
    """Approve or reject the plan of the sync *id*.

    *objects* and *machines* are clients of S3 and of Step Functions.

    Raises:
        NotWaiting: the sync *id* does not wait for an answer.
    """
    from botocore.exceptions import ClientError  # noqa: TID251 caught at the edge

    key = workflow.approval(id)
    try:
        stored: bytes = objects.get_object(Bucket=bucket, Key=key)["Body"].read()
        # Step Functions may have stored the token as a JSON string, in quotes.
        token = stored.decode().strip().strip('"')
        machines.send_task_success(taskToken=token, output=json.dumps({"approved": approved}))
    except ClientError as error:
        if error.response["Error"]["Code"] in (*_MISSING, *_OVER):
            raise NotWaiting(f"the sync {id} does not wait for an answer") from None
        raise
    objects.delete_object(Bucket=bucket, Key=key)


ANSWERS = {
    "approve": _answering("approve", approved=True, help="Approve the plan of the sync ID."),
    "reject": _answering("reject", approved=False, help="Reject the plan of the sync ID."),
}


class WithAnswers(click.Command):
    """The command `sync`. If its first argument names another command, run that command instead."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        answer = _command(args[0]) if args else None
        make: Callable[..., click.Context] = super().make_context
        if answer is not None:
            make, info_name, args = answer.make_context, f"{info_name} {args[0]}", args[1:]
        return make(info_name, args, parent, **extra)


def _command(name: str) -> click.Command | None:
    if name != "table":
        return ANSWERS.get(name)
    from tidings.sync.table import table

    return table


SPARK, SAIL = ENGINES = "spark", "sail"
STOPPED = 3
LAGS = 4
_EPILOG = (
    f"{EXIT_CODES[:-1]}, {STOPPED} stopped by a guard, {LAGS} all corrections are in the log, but"
    " the state does not advance."
)


class Lags(click.ClickException):
    """The whole plan is applied, but the state does not reach the end of the log."""

    exit_code = LAGS


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync that runs on this machine. *plan* is the folder in which to keep the plan, or None.

    `run` uses the temporary *folder*, and updates *outcome* while it runs.
    """

    target: Feed
    dump: str
    options: SyncOptions
    dry_run: bool
    plan: Path | None
    engine: str

    def run(self, phases: Phases, folder: Path, outcome: Outcome) -> None:
        from tidings.sync import job, spark_session
        from tidings.sync.feed import Applied, wait_for_state
        from tidings.sync.job import SUMMARY

        phases.begin("finding the dump")
        copied = files.copy_dump(self.dump, sys.stdin.buffer, folder)
        phases.begin("starting")
        with spark_session.of_engine(self.engine, folder, size=copied.size) as spark:
            phases.show_progress(spark)
            phases.begin("waiting for the state")
            through = wait_for_state(self.target.feed, self.target.end(), self.target.checkpoint)
            work = job.Job(spark, str(folder), self.options, phases.begin, names=copied.names)
            summary = work.make_plan(copied.paths, self.target.source(), through=through)
        (folder / "plan").mkdir(exist_ok=True)  # Spark creates the folder only for corrections
        (folder / "plan" / SUMMARY).write_text(summary.encode())
        if self.plan is not None:
            copy_folder(folder / "plan", self.plan)
        outcome.summary = summary
        if not self.dry_run:
            outcome.applied = Applied()
            self._apply(phases, folder / "plan", summary, outcome.applied)

    def _apply(self, phases: Phases, plan: Path, summary: Summary, applied: Applied) -> None:
        from tidings.sync.feed import NotFollowing, apply_plan, wait_for_state

        phases.begin("applying", summary.corrections)
        target, corrector = self.target, self.target.corrector()
        apply_plan(corrector, target.feed, plan, summary.through, applied, phases.advance)
        phases.begin("waiting for the state")
        try:
            wait_for_state(target.feed, target.end(), target.checkpoint)
        except NotFollowing as error:
            raise Lags(f"all corrections are applied, but {error}") from None


@dataclass(frozen=True, slots=True)
class CloudSync:
    """A sync that the state machine of a stage runs.

    *request* is the input of the state machine, apart from the address of the dump.
    """

    machine: Machine
    dump: str
    request: dict[str, Any]

    def run(self, phases: Phases, folder: Path, outcome: Outcome) -> None:
        from tidings.sync.stage import new_id

        id, dump = new_id(), self.dump
        if not self.machine.reads(dump):
            phases.begin("uploading the dump")
            dump = files.upload_dump(dump, sys.stdin.buffer, folder, self.machine.folder(id))
        phases.begin("starting")
        request = self.request | {"dump": dump}
        outcome.summary, outcome.applied = self.machine.run(id, request, phases.begin)


def _checked_list(ctx: click.Context, option: click.Parameter, text: str) -> str:
    try:
        from_text(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


@click.command(cls=WithAnswers, epilog=_EPILOG)
@click.argument("dump")
@named_feed_options
@click.option("--cloud", is_flag=True, help="Run the sync on the stage, not on this machine.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="Engine of the comparison.  [default: sail if the extra `sail` is installed, else spark]",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option(
    "--types",
    default="",
    metavar="A,B",
    callback=_checked_list,
    help="Compare objects of these types only; a JSON array if a type contains a comma.",
)
@click.option(
    "--as-of",
    metavar="CURSOR|TIME",
    help="Start of the dump: a time, or the end of the log at that time (`tidings log end`).",
)
@click.option("--no-deletes", is_flag=True, help="Delete nothing.")
@click.option(
    "--skip-bad", type=click.IntRange(0), default=0, help="Maximum number of bad lines to skip."
)
@click.option("--expect", type=click.IntRange(0), help="Required number of objects in the dump.")
@delete_share_option
@click.option("--plan", type=click.Path(path_type=Path), help="Keep the plan in this folder.")
@lineage_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.pass_context
def sync(
    ctx: click.Context,
    /,
    dump: str,
    named: NamedFeed,
    cloud: bool,
    engine: str | None,
    plan: Path | None,
    lineage: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Correct a feed so that it agrees with DUMP.

    DUMP is a file, a folder, a pattern in quotes, s3://bucket/key, s3://bucket/folder, or - for
    stdin. It has one JSON object per line, and may be gzipped.

    Objects that the feed lacks are inserted. Objects that are newer in the dump are updated.
    Objects that are not in the dump are deleted, if they are older than the dump. An object that
    changes during the sync is left as it is. With --as-of, this is also true for an object that
    changed since the dump began.

    \b
    Examples:
      tidings sync videos.json.gz --url https://feed.example --dry-run
      began=$(tidings log end --stage dev); ./export > videos.json
      tidings sync videos.json --stage dev --as-of "$began"
      tidings sync s3://exports/videos/2026-11-21/ --stage prod --cloud
      psql -qAtc "$QUERY" | tidings sync - --types video --stage dev

    If a plan waits for approval, answer with `tidings sync approve ID --stage prod`, or with
    `tidings sync reject ID --stage prod`. To compare a feed with a table that is in use, see
    `tidings sync table --help`.
    """
    if cloud and (not named.stage or plan is not None or engine is not None):
        raise click.UsageError("--cloud needs --stage, and excludes --plan and --engine")
    if engine == SAIL and not find_spec("pysail"):
        raise click.UsageError(f"--engine sail: {how_to_install(SAIL)}")
    wanted: Sync | CloudSync
    if cloud:
        wanted = _cloud_sync(dump, named.feed, named.stage, options)
    else:
        target = open_feed(named)
        engine = engine or (SAIL if find_spec("pysail") else SPARK)
        wanted = Sync(
            target=target,
            dump=dump,
            options=_sync_options(options, target),
            dry_run=options["dry_run"],
            plan=plan,
            engine=engine,
        )
    lineage_run = _lineage(named, dump, options["dry_run"]) if lineage else None
    _report(ctx, wanted, as_json, lineage_run)


def _lineage(named: NamedFeed, dump: str, dry_run: bool) -> Lineage:
    source = None if dump == files.STDIN else datasets.of_files(dump)
    return Lineage.of(named, source, dry_run)


def _sync_options(options: dict[str, Any], target: Feed) -> SyncOptions:
    from tidings.sync.job import SyncOptions, parse_types

    as_of = options["as_of"]
    with refusals():
        watermark = None if as_of is None else target.watermark(as_of)
    return SyncOptions(
        types=parse_types(options["types"]),
        deletes=not options["no_deletes"],
        skip_bad=options["skip_bad"],
        expected=options["expect"],
        delete_share_max=options["max_delete_share"],
        as_of=watermark,
    )


def _cloud_sync(dump: str, feed: str, stage: str, options: dict[str, Any]) -> CloudSync:
    from tidings.sync.stage import on_stage

    same = {name: options[name] for name in ("dry_run", "skip_bad", "expect", "max_delete_share")}
    if options["as_of"] is not None:
        same["as_of"] = options["as_of"]
    types, deletes = from_text(options["types"]), not options["no_deletes"]
    request = same | {"feed": feed, "types": types, "deletes": deletes}
    with refusals():
        return CloudSync(on_stage(stage), dump, request)


def _report(
    ctx: click.Context, wanted: Sync | CloudSync, as_json: bool, lineage: Lineage | None = None
) -> None:
    from tidings.sync.job import Stopped

    outcome = Outcome()
    try:
        with report_sync(lineage, outcome.counts):
            _run(wanted, outcome, silent=as_json)
    except Stopped as stopped:
        _show(Outcome(stopped.summary), as_json)
        click.echo(f"Stopped: {stopped.objection.sentence}.", err=True)
        ctx.exit(STOPPED)
    except click.ClickException as failed:
        _show(outcome, as_json, failed=failed.message)
        raise
    if outcome.summary is not None and not outcome.summary.known_whole:
        sentence = "a truncated dump is not detected without an end line or --expect"
        click.echo(f"Note: {sentence}.", err=True)
    _show(outcome, as_json)


def _run(wanted: Sync | CloudSync, outcome: Outcome, *, silent: bool) -> None:
    from tidings.sync.dump import BadDump, BadFile
    from tidings.sync.feed import NotFollowing
    from tidings.sync.spark_session import NoJava
    from tidings.sync.stage import SyncFailed

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-sync-")))
        phases = stack.enter_context(Phases(silent=silent))
        try:
            with failures(folder), refusals():
                wanted.run(phases, folder, outcome)
        except BadDump as bad:
            first = "\n".join(map(str, bad.first))
            raise click.ClickException(f"the dump has {bad}; nothing was done\n{first}") from None
        except BadFile as bad:
            raise click.ClickException(f"{bad}; nothing was done") from None
        except (NoJava, files.NoDump, NotFollowing, SyncFailed) as error:
            raise click.ClickException(str(error)) from None


def _show(outcome: Outcome, as_json: bool, *, failed: str = "") -> None:
    """Print the result, unless no plan was made. *failed* is the reason if the sync failed."""
    if outcome.summary is None:
        return
    if as_json:
        done = {} if outcome.applied is None else asdict(outcome.applied)
        why = {"failed": failed} if failed else {}
        click.echo(json.dumps(asdict(outcome.summary) | done | why))
        return
    from tidings.client.cli.render import printable, show
    from tidings.sync.cli import changes_table

    for note, count in outcome.summary.notes.items():
        click.echo(f"Note: {printable(note)} (lines: {count:,}).", err=True)

    show(changes_table(outcome.summary, outcome.applied))
