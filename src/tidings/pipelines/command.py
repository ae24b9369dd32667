"""The commands of `tidings pipeline`, which write, show, check and run pipelines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.client.address import DEFAULT_URL
from tidings.client.cli.main import CHECK_CODES, EXIT_CODES, FOUND
from tidings.client.cli.options import address_without_password, json_option
from tidings.client.cli.render import answer, compact, printable, table
from tidings.client.retries import stop_on_signals
from tidings.core.version import how_to_install
from tidings.lineage.runs import lineage_option
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.templates import SINK_NAMES, SINKS, SOURCE_NAMES, SOURCES, render_file
from tidings.server.output import unblock

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.pipelines.ingest_source import Reader
    from tidings.pipelines.ownership import OwnedStore
    from tidings.pipelines.pipeline import Pipeline
    from tidings.pipelines.running import Runner

DEFAULT_FILE = "pipeline.py"
_COLUMNS = ("store", "state", "records", "batches", "failures", "error")
_file = click.argument("file", default=DEFAULT_FILE, type=click.Path(path_type=Path))


class _Named(click.Choice[str]):
    """A choice of *names* that also accepts aliases. *others* maps each alias to its name."""

    def __init__(self, names: Mapping[str, object], others: Mapping[str, str]) -> None:
        super().__init__(list(names))
        self._others = others

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = value.lower()
        return super().convert(self._others.get(name, name), param, ctx)


@click.group(epilog=EXIT_CODES)
def pipeline() -> None:
    """Copy a feed into stores and keep the stores up to date; functions may transform the messages.

    \b
    Examples:
      tidings pipeline init postgres parquet      write pipeline.py
      tidings pipeline init ndjson --read mysql   from a table of MySQL
      tidings pipeline test                       check pipeline.py only
      tidings pipeline run                        run it until Ctrl-C
    """


@pipeline.command(epilog=EXIT_CODES)
@click.argument("sinks", nargs=-1, required=True, type=_Named(SINKS, SINK_NAMES))
@click.option(
    "--read",
    "sources",
    multiple=True,
    metavar="SOURCE",
    type=_Named(SOURCES, SOURCE_NAMES),
    help="Also read this source into the feed, see `tidings pipeline about`; repeatable.",
)
@click.option("--file", default=DEFAULT_FILE, show_default=True, type=click.Path(path_type=Path))
@click.option("--name", default="copy", show_default=True, help="Name of the pipeline.")
@address_without_password
@click.option("--force", is_flag=True, help="Overwrite the file without asking.")
@json_option
def init(
    sinks: tuple[str, ...],
    sources: tuple[str, ...],
    file: Path,
    name: str,
    url: str,
    feed: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write a file with a pipeline that saves to each of SINKS.

    \b
    Examples:
      tidings pipeline init postgres parquet
      tidings pipeline init ndjson --read mysql --file orders.py --name orders
    """
    if (
        file.exists()
        and not force
        and not (sys.stdin.isatty() and click.confirm(f"{file} exists, overwrite?"))
    ):
        raise click.ClickException(f"{file} exists and was left as it is")
    once = tuple(dict.fromkeys(sources)), tuple(dict.fromkeys(sinks))
    file.write_text(render_file(name, url or DEFAULT_URL, feed, *once))
    answer({"file": str(file)}, f"wrote {file}", as_json=as_json)


@pipeline.command(epilog=CHECK_CODES)
@_file
@json_option
@click.pass_context
def test(ctx: click.Context, /, file: Path, as_json: bool) -> None:
    """Check FILE and show its pipeline, without copying data.

    Connect to each table or collection that the pipeline reads, check that it can be read, and
    print the grants that the database user needs. Print whether each store may use its target, and
    whether a start would mark it. The exit code is 3 if a table cannot be read or a store refuses
    its target, and 1 if a server of them could not be reached.

    \b
    Example:
      tidings pipeline test
    """
    made = _load(file)
    found = (_check(name, made.reader(name), each) for name, each in made.readers.items())
    checks = [each for each in found if each is not None]
    stores = list(_check_targets(made))
    if as_json:
        lists = {"sources": [*map(asdict, checks)], "stores": [*map(asdict, stores)]}
        click.echo(compact({"pipeline": made.tree().splitlines(), **lists}))
    else:
        click.echo(made.tree())
        for check in (*checks, *stores):
            click.echo("\n".join(check.lines()))
    has_problems = any(each.problems for each in (*checks, *stores))
    ctx.exit(FOUND if has_problems else int(any(each.unchecked for each in (*checks, *stores))))


@dataclass(frozen=True, slots=True)
class Check:
    """The result of the check of a source, or of the target of a store.

    *problems* are the reasons why it cannot be used, and *verdict* is the result otherwise.
    *grants* are what the user of the database needs. If the server cannot be reached, *unchecked*
    is the reason.
    """

    source: str
    problems: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    unchecked: str = ""
    verdict: str = "can be read"

    def lines(self) -> Iterator[str]:
        if self.unchecked:
            yield f"{self.source}: not checked, the server cannot be reached: {self.unchecked}"
            return
        for each in self.problems:
            yield f"{self.source}: {printable(each)}"
        if not self.problems:
            yield f"{self.source}: {self.verdict}"
        if self.grants:
            yield "\n  ".join([f"{self.source}: the database user needs", *self.grants])


def _check_targets(made: Pipeline) -> Iterator[Check]:
    """Yield the result of the check of each store that marks its target, if the feed answers."""
    from tidings.client.errors import ClientError
    from tidings.pipelines.ownership import OwnedStore

    for branch in made.branches:
        if isinstance(branch.sink, OwnedStore):
            try:
                branch.sink.assign(made.owner(branch))
            except ClientError:
                return
            yield _check_target(branch.name, branch.sink)


def _check_target(name: str, sink: OwnedStore) -> Check:
    try:
        return _result(name, lambda: Check(name, verdict=sink.verdict()))
    finally:
        with suppress(Exception):
            sink.close()


def _result(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except WrongPipeline as error:
        return Check(name, [str(error)])
    except Exception as error:  # noqa: BLE001 each driver has errors of its own
        return Check(name, unchecked=printable(str(error).strip().partition("\n")[0]))


def _check(name: str, consumer: str, reader: Reader) -> Check | None:
    """Return the result of the check of *reader*; None if it has no check."""
    check = getattr(reader, "check", None)  # only readers of tables and collections have `check`
    make: Callable[..., Check] = partial(Check, name)
    return check and _result(name, lambda: make(*map(list, check(consumer))))


@pipeline.command(epilog=EXIT_CODES)
@click.argument("name", required=False, type=_Named(SOURCES | SINKS, SOURCE_NAMES | SINK_NAMES))
@json_option
def about(name: str | None, as_json: bool) -> None:
    """List the sources and stores, or show an example of one.

    \b
    Examples:
      tidings pipeline about
      tidings pipeline about postgres
    """
    samples = SOURCES | SINKS
    if as_json:
        named = samples if name is None else {name: samples[name]}
        click.echo(compact({each: sample._asdict() for each, sample in named.items()}))
        return
    if name is None:
        for each, sample in samples.items():
            click.echo(f"{each} - {sample.description}")
        return
    sample = samples[name]
    click.echo(f"{name} - {sample.description}\n\nSample:\n  {sample.text}")
    if sample.extra:
        click.echo(f"\nBefore you use it, {how_to_install(sample.extra)}")


def _parse_adopted(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, int]:
    """Parse each `STORE=ROWS`."""
    found = {}
    for each in values:
        store, _, rows = each.partition("=")
        if not (store and rows.isascii() and rows.isdecimal()):
            raise click.BadParameter(f"{each!r} is not STORE=ROWS", ctx, param)
        found[store] = int(rows)
    return found


@pipeline.command(epilog=EXIT_CODES)
@_file
@click.option("--json", "as_json", is_flag=True, help="Print events as lines of JSON.")
@click.option(
    "--emf", is_flag=True, help="Like --json, with metrics in CloudWatch's embedded metric format."
)
@click.option("--events-url", metavar="URL", help="Also post each event to this address.")
@click.option(
    "--events-bus", metavar="NAME", help="Also put each event on this bus of EventBridge."
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Attempts to write a message before its store is stopped.",
)
@lineage_option
@click.option("--worker", default="", metavar="TEXT", help="Unique name of this process.")
@click.option(
    "--adopt",
    "adopted",
    multiple=True,
    metavar="STORE=ROWS",
    callback=_parse_adopted,
    help="Take over the target of a store, which has this number of rows; repeatable.",
)
@click.option("--fail-fast", is_flag=True, help="End as soon as a store or reader has failed.")
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    as_json: bool,
    emf: bool,
    events_url: str | None,
    events_bus: str | None,
    attempts: int,
    lineage: bool,
    worker: str,
    adopted: dict[str, int],
    fail_fast: bool,
) -> None:
    """Run FILE until Ctrl-C or SIGTERM.

    The feed keeps the position of each store, as a consumer named PIPELINE.STORE, which
    `tidings consumers list` shows. If the command is killed, the next run resumes at these
    positions. A store that keeps failing is stopped; the other stores continue, and the exit code
    is 1. A store that was reached once and becomes unavailable, or refuses for a reason that
    passes, is `waiting`, and is retried until it is available.

    A store marks its target, and refuses a target of another pipeline, or with data of an unknown
    origin. With --adopt, it takes over such a target once; the next copy replaces its contents.

    \b
    Examples:
      tidings pipeline run
      tidings pipeline run --adopt table=100
      tidings pipeline run orders.py --json
    """
    from tidings.pipelines.events import emitter
    from tidings.pipelines.running import Runner

    unblock("stdout", waits=True)  # a full pipe of reports must not stop the stores
    lines = as_json or emf
    made = _load(file)
    if unknown := adopted.keys() - {branch.name for branch in made.branches}:
        raise click.UsageError(f"--adopt: {file} has no store {', '.join(sorted(unknown))}")
    lineage_of = made if lineage else None
    with emitter(
        as_json=as_json, url=events_url, bus=events_bus, emf=emf, lineage=lineage_of
    ) as send:
        runner = Runner(
            made, send, attempts=attempts, worker=worker, adopt=adopted, fail_fast=fail_fast
        )
        stop_on_signals(runner.stop)
        well = _run_with_table(runner) if not lines and sys.stdout.isatty() else runner.run()
    for each in runner.progress if not lines else ():
        because = f" ({printable(each.error)})" if each.error else ""
        click.echo(f"{each.name}: {each.state}, {each.records:,} records{because}")
    if not well:
        ctx.exit(1)


def _load(file: Path) -> Pipeline:
    from tidings.pipelines.pipeline import load

    try:
        return load(file)
    except WrongPipeline as error:
        raise click.ClickException(str(error)) from None


def _run_with_table(runner: Runner) -> bool:
    from rich.live import Live

    with Live(_table(runner), refresh_per_second=4) as live:
        return runner.run(lambda: live.update(_table(runner)))


def _table(runner: Runner) -> Table:
    rows = [{**asdict(each), "store": each.name, "error": each.shown} for each in runner.progress]
    return table(_COLUMNS, rows)
