"""
`make sandbox`: deploy a stage, look at what only AWS can show, take the stage away, report.

    python -m infra.sandbox               with credentials of AWS; an hour, and a few dollars
    python -m infra.sandbox --emulator    the same steps on this machine, as far as they go there
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError

from infra import emulator, settings
from infra.sandbox import catalogue, deploying, leaving, record, report
from infra.sandbox.ground import Amazon, Emulated, Ground, Options, Place
from infra.sandbox.record import Record
from infra.sandbox.steps import Outcome, Plan, Result, Run, Step, chosen, flat, outcome

FAILED, LEFT, INTERRUPTED = 1, 3, 130
MINUTES = 65  # of a whole run, by what each step is given; nobody has measured one on AWS
_EMULATED = Options(load_s=60, rate=5)
_REPORT, _DATA = "report.md", "report.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, beside where."""

    only: tuple[str, ...]
    without: tuple[str, ...]
    keep: bool
    as_json: bool


def _named(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    known = [step.name for step in flat(catalogue.PLAN)]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is no step; there are {', '.join(known)}")
    return names


@click.command(context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]})
@click.option("--emulator", "emulated", is_flag=True, help="On MiniStack, which it starts.")
@click.option("--yes", is_flag=True, help="Do not ask before money is spent.")
@click.option("--keep", is_flag=True, help="Leave the stage there; --destroy takes it away.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was kept or killed.")
@click.option("--destroy", metavar="RUN", help="Only take the stage of a run away.")
@click.option("--list", "listed", is_flag=True, help="Only show the sandboxes of the account.")
@click.option("--only", default="", callback=_named, metavar="A,B", help="These, and their needs.")
@click.option("--without", default="", callback=_named, metavar="A,B", help="All but these steps.")
@click.option("--load-seconds", type=click.FloatRange(10), help="How long the load is.")
@click.option("--rate", type=click.FloatRange(1, 400), help="Operations of the load a second.")
@click.option("--subnet", "subnets", multiple=True, metavar="ID", help="A job of Spark is in.")
@click.option("--security-group", "groups", multiple=True, metavar="ID", help="That it has there.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def main(
    emulated: bool,
    yes: bool,
    resume: str | None,
    destroy: str | None,
    listed: bool,
    load_seconds: float | None,
    rate: float | None,
    subnets: tuple[str, ...],
    groups: tuple[str, ...],
    **wanted: Any,
) -> None:
    """
    Make a stage in your account, show on it what only AWS can show, and take it away.

    A run takes an hour. It says what it will cost at most, and asks. Whatever fails, and after
    Ctrl-C, the stage is taken away, and it is looked whether anything is left. The report is in
    build/sandbox/RUN.

    \b
    Examples:
      python -m infra.sandbox
      python -m infra.sandbox --only smoke,cors --yes
      python -m infra.sandbox --subnet subnet-1 --subnet subnet-2 --security-group sg-1
      python -m infra.sandbox --list
      python -m infra.sandbox --destroy 3fa1c2
      python -m infra.sandbox --emulator

    \b
    Exit codes:
      0    every step that could be run passed, and nothing is left
      1    a step failed
      2    wrong usage
      3    something of the stage is left
      130  interrupted, and nothing is left
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    _check_usage(emulated, wanted["keep"], [resume, destroy, listed], subnets, groups)
    options = _options(_EMULATED if emulated else Options(), load_seconds, rate, subnets, groups)
    with _place(emulated) as place:
        if listed:
            _list(place)
            return
        kept = _record(place, resume or destroy, options, Wanted(**wanted))
        session = Session(place, kept, options, Wanted(**wanted))
        if destroy:
            sys.exit(session.leave())
        if not emulated and not yes:
            session.ask()
        sys.exit(session.run())


def _interrupt(number: int, frame: object) -> None:
    """What waits for an answer ends by itself, within three minutes at most."""
    _say("interrupted: what is under way is ended, then the stage is taken away")
    raise KeyboardInterrupt


def _check_usage(
    emulated: bool,
    keep: bool,
    instead: Sequence[object],
    subnets: Sequence[str],
    groups: Sequence[str],
) -> None:
    if sum(map(bool, instead)) > 1:
        raise click.UsageError("--resume, --destroy and --list exclude each other")
    if emulated and (keep or any(instead)):
        raise click.UsageError("an emulator ends with its run: nothing of it is kept")
    if bool(subnets) != bool(groups):
        raise click.UsageError("--subnet and --security-group go together")


def _options(
    usual: Options,
    load_s: float | None,
    rate: float | None,
    subnets: tuple[str, ...],
    groups: tuple[str, ...],
) -> Options:
    return replace(
        usual,
        load_s=load_s or usual.load_s,
        rate=rate or usual.rate,
        subnets=subnets,
        security_groups=groups,
    )


@contextmanager
def _place(emulated: bool) -> Iterator[Place]:
    if not emulated:
        try:
            yield Amazon()
        except (BotoCoreError, ClientError) as error:
            raise click.ClickException(f"AWS: {error}") from None
        return
    try:
        with emulator.running(record.FOLDER / "emulator") as running:
            yield Emulated(running)
    except emulator.EmulatorFailed as error:
        raise click.ClickException(str(error)) from None


def _record(place: Place, run: str | None, options: Options, wanted: Wanted) -> Record:
    """That of *run*, or a new one. A stage can be taken away without one."""
    asked = {
        "load_seconds": options.load_s,
        "rate": options.rate,
        "only": list(wanted.only),
        "without": list(wanted.without),
    }
    if run is None:
        return record.begun(place.name, place.account, place.region, asked)
    run = run.removeprefix(settings.SANDBOX)
    try:
        found = record.read(run)
    except record.NoRun:
        found = record.begun(place.name, place.account, place.region, asked)
        return replace(found, run=run)
    if (found.account, found.region) != (place.account, place.region):
        where = f"{found.account} in {found.region}"
        raise click.UsageError(f"the run {run} is in the account {where}: use its credentials")
    return found


def _list(place: Place) -> None:
    found = list(leaving.sandboxes(place))
    for each in found:
        click.echo(f"{each['stage']}  {each['status']}  expires {each['expires']}")
    if not found:
        click.echo("There is no sandbox in this account and Region.", err=True)


class Session:
    """One run of *plan*, from what it asks to what it leaves."""

    def __init__(
        self,
        place: Place,
        kept: Record,
        options: Options,
        wanted: Wanted,
        plan: Plan[Ground] = catalogue.PLAN,
    ) -> None:
        self._place, self._record, self._wanted = place, kept, wanted
        self._plan: Plan[Ground] = chosen(plan, wanted.only, wanted.without)
        if not place.emulated:
            self._record.dollars = sum(step.dollars for step in flat(self._plan))
        self._opened = ExitStack()
        self._ground = Ground(
            kept.stage,
            kept.expires,
            place,
            kept.folder,
            options,
            kept.facts,
            opened=self._opened,
        )

    def ask(self) -> None:
        """
        Say what will be done, and what it costs at most.

        Raises:
            click.Abort: no.
        """
        stage, place = self._record.stage, self._place
        count = sum(1 for _ in flat(self._plan))
        click.echo(
            f"This deploys the stage {stage} to the account {place.account} in {place.region}, "
            f"runs {count} steps on it and takes it away: some {MINUTES} minutes for all.\n"
            f"By list prices of us-east-1 it costs at most ${self._record.dollars:.2f}.\n"
            "Until it is gone, anybody who finds its addresses may read it and post to it.\n"
            "What stays where it was not there before: the CDK's bootstrap and its assets, and "
            "tidings-account, API Gateway's logging role.",
            err=True,
        )
        click.confirm("Go on?", abort=True, err=True)

    def run(self) -> int:
        """The exit code, once the stage is gone or is to be kept."""
        self._ground.folder.mkdir(parents=True, exist_ok=True)
        self._record.save()
        _say(f"run {self._record.run}; if this is killed: {_destroy(self._record)}")
        interrupted = False
        try:
            if Outcome.PASSED is outcome(self._record.results, catalogue.DEPLOY):
                deploying.serve(self._ground)
            self._steps(self._ground).carry_out(self._plan)
        except KeyboardInterrupt:
            interrupted = True
            _say("the stage is taken away now, unless you interrupt once more")
        finally:
            self._opened.close()
        if self._wanted.keep and not interrupted:
            _say(f"kept, until somebody says: {_destroy(self._record)}")
            return self._told()
        return self.leave() or (INTERRUPTED if interrupted else 0)

    def leave(self) -> int:
        """Take the stage away; the exit code of all that there is a result of."""
        self._record.results.pop(catalogue.DESTROY.name, None)
        ground = replace(self._ground, stop=threading.Event())
        try:
            self._steps(ground).carry_out([[[catalogue.DESTROY]]])
        except KeyboardInterrupt:
            _say(f"the stage is not gone: {_destroy(self._record)}")
        code = self._told()
        return (
            code
            if outcome(self._record.results, catalogue.DESTROY.name) is Outcome.PASSED
            else LEFT
        )

    def _steps(self, ground: Ground) -> Run[Ground]:
        emulated = self._place.emulated
        return Run(ground, emulated, self._record.results, self._tell, ground.stop)

    def _tell(self, step: Step[Ground], result: Result | None) -> None:
        if result is None:
            _say(f"{step.name}: {step.shows} ...")
            return
        self._record.save()
        self._write()
        reason = f": {result.reason}" if result.reason else ""
        _say(f"{step.name}: {result.outcome} after {result.seconds:.0f} s{reason}")

    def _write(self) -> None:
        folder = self._record.folder
        (folder / _REPORT).write_text(report.markdown(self._record) + "\n")
        (folder / _DATA).write_text(json.dumps(report.as_json(self._record), indent=1) + "\n")

    def _told(self) -> int:
        self._record.save()
        self._write()
        if self._wanted.as_json:
            click.echo(json.dumps(report.as_json(self._record)))
        else:
            click.echo(report.markdown(self._record))
        _say(f"the report: {self._record.folder / _REPORT}, {_DATA} beside it")
        failed = [
            name
            for name, result in self._record.results.items()
            if result.outcome is Outcome.FAILED and name != catalogue.DESTROY.name
        ]
        return FAILED if failed else 0


def _destroy(kept: Record) -> str:
    return f"{report.COMMAND} --destroy {kept.run}"


def _say(line: str) -> None:
    click.echo(f"{datetime.now():%H:%M:%S}  {line}", err=True)


if __name__ == "__main__":
    main()
