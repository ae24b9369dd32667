"""A run as its operator sees it: what it asks, what it leaves, and how it ends."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.sandbox import __main__ as command
from infra.sandbox import catalogue, record
from infra.sandbox.__main__ import FAILED, INTERRUPTED, LEFT, Session, Wanted
from infra.sandbox.ground import Ground, Options
from infra.sandbox.record import Record
from infra.sandbox.steps import Figures, NotSo, Outcome, Plan, Result, Step
from tests.infra.sandbox.account import Account
from tests.infra.sandbox.conftest import DATA, STAGE, deploy

EVERYTHING = Wanted((), (), keep=False, as_json=True)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where runs are kept."""
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def kept(account: Account) -> Record:
    made = record.begun(account.name, account.account, account.region, {})
    made.run = STAGE.removeprefix("sandbox-")
    return made


def plan(account: Account, *behind: BaseException | None) -> Plan[Ground]:
    """A stage that is deployed, and a step for each of *behind*, which it raises if it is any."""

    def deploys(ground: Ground) -> Figures:
        deploy(account)
        return {}

    def does(error: BaseException | None, ground: Ground) -> Figures:
        if error is not None:
            raise error
        return {"seen": 1}

    steps = [
        Step(f"step-{at}", "it works", partial(does, error), (catalogue.DEPLOY,))
        for at, error in enumerate(behind)
    ]
    return [[[Step(catalogue.DEPLOY, "it is there", deploys), *steps]]]


@pytest.mark.parametrize(
    ("behind", "code"),
    [
        ((None,), 0),
        ((NotSo("it is not so"), None), FAILED),
        ((KeyboardInterrupt(), None), INTERRUPTED),
        ((RuntimeError("a bug"),), FAILED),
    ],
    ids=["passed", "failed", "interrupted", "broken"],
)
def test_the_stage_goes_whatever_happens(
    account: Account, kept: Record, behind: tuple[BaseException | None, ...], code: int
) -> None:
    """And the exit code says what did."""
    session = Session(account, kept, Options(), EVERYTHING, plan(account, *behind))
    assert session.run() == code
    assert account.stacks == {}
    assert kept.results["destroy"].outcome is Outcome.PASSED


def test_what_is_left_is_the_worst_end(kept: Record) -> None:
    """Whatever the steps showed."""
    account = Account(f"{DATA}-log")
    assert Session(account, kept, Options(), EVERYTHING, plan(account, None)).run() == LEFT


def test_a_kept_stage_is_taken_away_later(account: Account, kept: Record) -> None:
    """By another process, which is told the name alone."""
    keep = Wanted((), (), keep=True, as_json=True)
    assert Session(account, kept, Options(), keep, plan(account, None)).run() == 0
    assert account.stacks
    again = record.read(kept.run)
    assert Session(account, again, Options(), EVERYTHING).leave() == 0
    assert account.stacks == {}
    assert record.read(kept.run).results["step-0"].figures == {"seen": 1}


def test_an_interrupted_run_is_taken_away_though_it_was_to_be_kept(
    account: Account, kept: Record
) -> None:
    """Nobody knows then in what it was interrupted."""
    keep = Wanted((), (), keep=True, as_json=True)
    stopped = plan(account, KeyboardInterrupt())
    assert Session(account, kept, Options(), keep, stopped).run() == INTERRUPTED
    assert account.stacks == {}


def test_a_run_goes_on_where_it_was_killed(account: Account, kept: Record) -> None:
    """What passed is not run again: a second deploy would find its names taken."""
    deploy(account)
    kept.results["deploy"] = Result(Outcome.PASSED)
    kept.save()
    session = Session(account, record.read(kept.run), Options(), EVERYTHING, plan(account, None))
    assert session.run() == 0
    assert record.read(kept.run).results["step-0"].outcome is Outcome.PASSED


def test_the_report_is_there_while_the_run_goes_on(
    account: Account, kept: Record, folder: Path
) -> None:
    """So that one that is killed has told what it saw."""
    seen = []

    def looks(ground: Ground) -> Figures:
        seen.append(json.loads((folder / kept.run / "report.json").read_text()))
        return {}

    steps = [*plan(account)[0][0], Step("smoke", "it works", looks)]
    Session(account, kept, Options(), EVERYTHING, [[steps]]).run()
    outcomes = {each["step"]: each["outcome"] for each in seen[0]["steps"]}
    assert outcomes["deploy"] == "passed"
    assert outcomes["conformance"] == "could not run"


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch, account: Account) -> Account:
    """What the command takes for AWS."""
    monkeypatch.setattr(command, "Amazon", lambda: account)
    return account


def test_it_asks_before_it_spends(amazon: Account) -> None:
    """It says where, what it costs at most and what stays; who says no has spent nothing."""
    result = CliRunner().invoke(command.main, [], input="n\n")
    assert result.exit_code == 1
    for said in (amazon.account, amazon.region, "at most $", "anybody", "bootstrap"):
        assert said in result.output
    assert amazon.stacks == {}


def test_sandboxes_are_listed(amazon: Account) -> None:
    """Those of others, too: names and when they expire."""
    assert "no sandbox" in CliRunner().invoke(command.main, ["--list"]).output
    deploy(amazon)
    assert STAGE in CliRunner().invoke(command.main, ["--list"]).output


def test_a_stage_goes_without_a_record(amazon: Account) -> None:
    """From another machine than the one that made it; by the name of the run or the stage."""
    deploy(amazon)
    result = CliRunner().invoke(command.main, ["--destroy", STAGE])
    assert result.exit_code == 0, result.output
    assert amazon.stacks == {}


def test_a_run_is_gone_on_with_in_its_account(amazon: Account, kept: Record) -> None:
    """Credentials of another one would find nothing, and say that all is gone."""
    kept.account = "999999999999"
    kept.save()
    result = CliRunner().invoke(command.main, ["--destroy", kept.run])
    assert result.exit_code == 2
    assert "999999999999" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "smoek"], "'smoek' is no step; there are bootstrap, doctor"),
        (["--emulator", "--keep"], "an emulator ends with its run"),
        (["--resume", "a", "--destroy", "a"], "exclude each other"),
        (["--subnet", "subnet-1"], "go together"),
        (["--load-seconds", "0"], "--load-seconds"),
    ],
)
def test_wrong_usage_is_named(amazon: Account, words: list[str], said: str) -> None:
    """Before anything is asked or done."""
    result = CliRunner().invoke(command.main, words)
    assert result.exit_code == 2
    assert said in result.output
