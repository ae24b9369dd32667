"""Steps: what one that fails, cannot be run or is interrupted means to the others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from botocore.exceptions import ClientError

from infra.sandbox.steps import (
    CouldNot,
    Figures,
    NotSo,
    Outcome,
    Plan,
    Result,
    Run,
    Step,
    Stopped,
    chosen,
    flat,
)


@dataclass
class Floor:
    """What the steps below stand on: who was there."""

    ran: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


def step(name: str, *needs: str, aws_alone: str = "") -> Step[Floor]:
    """One that passes."""

    def does(floor: Floor) -> Figures:
        floor.ran.append(name)
        return {"ran": 1}

    return Step(name, f"{name} can be done", does, needs, aws_alone)


def raising(name: str, error: BaseException, *needs: str) -> Step[Floor]:
    """One that does not."""

    def does(floor: Floor) -> Figures:
        raise error

    return Step(name, f"{name} can be done", does, needs)


def run(plan: Plan[Floor], *, emulated: bool = False, **before: Result) -> dict[str, Result]:
    floor, results = Floor(), dict(before)
    Run(floor, emulated, results, lambda step, result: None, floor.stop).carry_out(plan)
    return results


def test_a_failure_stops_only_what_needs_it() -> None:
    """The others are run; what needs it says so, and what needs that as well."""
    broken = raising("b", NotSo("it is not so", {"seen": 2}))
    results = run([[[step("a"), broken, step("c", "b"), step("d", "c"), step("e", "a")]]])
    assert {name: each.outcome for name, each in results.items()} == {
        "a": Outcome.PASSED,
        "b": Outcome.FAILED,
        "c": Outcome.COULD_NOT,
        "d": Outcome.COULD_NOT,
        "e": Outcome.PASSED,
    }
    assert (results["b"].reason, results["b"].figures) == ("it is not so", {"seen": 2})
    assert "b" in results["c"].reason


def test_an_error_that_nobody_expected_is_a_failure() -> None:
    """With its name; the next step is run."""
    results = run([[[raising("a", ZeroDivisionError("by zero")), step("b")]]])
    assert results["a"].outcome is Outcome.FAILED
    assert results["a"].reason == "ZeroDivisionError: by zero"
    assert results["b"].outcome is Outcome.PASSED


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException"])
def test_what_the_credentials_may_not_is_no_failure(code: str) -> None:
    """Of the stage nothing is known then."""
    denied = ClientError({"Error": {"Code": code, "Message": "no"}}, "GetMetricData")
    results = run([[[raising("a", denied), raising("b", CouldNot("no subnets"))]]])
    assert results["a"].outcome is Outcome.COULD_NOT
    assert "credentials" in results["a"].reason
    assert results["b"] == Result(Outcome.COULD_NOT, "no subnets", {}, results["b"].seconds)


def test_an_emulator_is_not_asked_what_aws_alone_can_show() -> None:
    """The reason is the step's."""
    plan = [[[step("a", aws_alone="it has no clock")]]]
    assert "it has no clock" in run(plan, emulated=True)["a"].reason
    assert run(plan)["a"].outcome is Outcome.PASSED


def test_what_passed_is_not_run_again() -> None:
    """What did not is, in a run that is gone on with."""
    floor = Floor()
    results = {"a": Result(Outcome.PASSED), "b": Result(Outcome.FAILED, "then")}
    plan = [[[step("a"), step("b")]]]
    Run(floor, False, results, lambda step, result: None, floor.stop).carry_out(plan)
    assert floor.ran == ["b"]
    assert results["b"].outcome is Outcome.PASSED


def test_chains_of_a_group_run_beside_each_other() -> None:
    """Each waits here for the other one; the next group waits for both."""
    meeting = threading.Barrier(2, timeout=30)

    def meets(floor: Floor) -> Figures:
        meeting.wait()
        floor.ran.append("met")
        return {}

    def counts(floor: Floor) -> Figures:
        return {"met": floor.ran.count("met")}

    pair = [[Step("a", "", meets)], [Step("b", "", meets)]]
    results = run([pair, [[Step("c", "", counts)]]])
    assert results["c"].figures == {"met": 2}


def test_an_interruption_ends_what_waits_and_is_told() -> None:
    """What runs beside is stopped, nothing more is begun, and the caller hears of it."""
    floor, waiting, results = Floor(), threading.Event(), dict[str, Result]()

    def waits(floor: Floor) -> Figures:
        waiting.set()
        assert floor.stop.wait(30)
        raise Stopped

    def interrupts(floor: Floor) -> Figures:
        assert waiting.wait(30)
        raise KeyboardInterrupt

    plan = [[[Step("a", "", interrupts), step("b")], [Step("c", "", waits), step("d")]]]
    with pytest.raises(KeyboardInterrupt):
        Run(floor, False, results, lambda step, result: None, floor.stop).carry_out(plan)
    assert {name: each.reason for name, each in results.items()} == {
        "a": "it was interrupted",
        "c": "it was interrupted",
    }
    assert floor.ran == []


def test_a_choice_has_what_it_needs() -> None:
    """And needs of needs; what is left out goes in any case."""
    plan = [[[step("a"), step("b", "a")], [step("c", "b"), step("d")]]]
    assert [each.name for each in flat(chosen(plan, ["c"], []))] == ["a", "b", "c"]
    assert [each.name for each in flat(chosen(plan, [], ["a"]))] == ["b", "c", "d"]
