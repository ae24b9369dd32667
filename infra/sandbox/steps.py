"""Steps of a run: each shows one thing, does not stop the others, and says what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from botocore.exceptions import ClientError

# What AWS says to credentials that may not: nothing is wrong with the stage then.
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AccessDeniedError")
REASON_CHARS_MAX = 1500  # of what a command printed: the end of it, where the error is

Ground = TypeVar("Ground")
Figures = Mapping[str, "str | int | float"]
NO_FIGURES: Figures = {}


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT = "could not run"


class NotSo(Exception):
    """What a step was to show is not so. *figures* say what was seen."""

    def __init__(self, reason: str, figures: Figures = NO_FIGURES) -> None:
        super().__init__(reason)
        self.figures = figures


class CouldNot(Exception):
    """A step cannot be run here; the message is the reason."""


class Stopped(Exception):
    """Somebody ended the run while a step was under way."""


@dataclass(frozen=True, slots=True)
class Step(Generic[Ground]):
    """
    *shows* is a sentence that holds where *does* returns. *needs* names steps without which it
    cannot be run. *aws_alone* is why an emulator cannot show it; empty where it runs on both.
    *dollars* is what it costs at most. *asks* are options that it needs, as its user types them.
    """

    name: str
    shows: str
    does: Callable[[Ground], Figures]
    needs: tuple[str, ...] = ()
    aws_alone: str = ""
    dollars: float = 0.0
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """*reason* is empty where it passed."""

    outcome: Outcome
    reason: str = ""
    figures: Figures = field(default_factory=dict)
    seconds: float = 0.0


def outcome(results: Mapping[str, Result], step: str) -> Outcome | None:
    """What came of *step*; None where it was not tried."""
    result = results.get(step)
    return result.outcome if result else None


Chain = Sequence[Step[Ground]]  # one after the other
Plan = Sequence[Sequence[Chain[Ground]]]  # chains of a group run beside each other


def flat(plan: Plan[Ground]) -> Iterator[Step[Ground]]:
    """Every step of *plan*, in the order of the report."""
    for group in plan:
        for chain in group:
            yield from chain


def chosen(
    plan: Plan[Ground], only: Collection[str], without: Collection[str]
) -> list[list[list[Step[Ground]]]]:
    """*plan* with the steps of *only*, if any, and what those need; but for those *without*."""
    by_name = {step.name: step for step in flat(plan)}
    wanted = set(only) or set(by_name)
    ahead = list(wanted)
    while ahead:
        ahead = [need for name in ahead for need in by_name[name].needs if need not in wanted]
        wanted |= set(ahead)
    wanted -= set(without)
    return [[[step for step in chain if step.name in wanted] for chain in group] for group in plan]


@dataclass
class Run(Generic[Ground]):
    """
    Carries steps out on *ground*.

    *results* are those there are, of an earlier attempt too: what passed is not run again.
    *told* is called with each step that begins (no result) and ends. *stop* is set where somebody
    ends the run: what waits looks at it.
    """

    ground: Ground
    emulated: bool
    results: dict[str, Result]
    told: Callable[[Step[Ground], Result | None], None]
    stop: threading.Event
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def carry_out(self, plan: Plan[Ground]) -> None:
        """
        Every group of *plan*, one after the other.

        Raises:
            KeyboardInterrupt: as it was raised, once what ran beside has ended.
        """
        for group in plan:
            chains = [chain for chain in group if chain]
            if len(chains) == 1:
                self._chain(chains[0])
            elif chains:
                self._beside(chains)

    def _beside(self, chains: Sequence[Chain[Ground]]) -> None:
        with ThreadPoolExecutor(len(chains)) as workers:
            try:
                for each in [workers.submit(self._chain, chain) for chain in chains]:
                    each.result()
            except KeyboardInterrupt:
                self.stop.set()
                raise

    def _chain(self, chain: Chain[Ground]) -> None:
        for step in chain:
            if not self.stop.is_set() and outcome(self.results, step.name) is not Outcome.PASSED:
                self._step(step)

    def _step(self, step: Step[Ground]) -> None:
        self.told(step, None)
        began = time.monotonic()
        result = self._cannot(step) or self._tried(step)
        done = Result(result.outcome, result.reason, dict(result.figures), time.monotonic() - began)
        with self._lock:
            self.results[step.name] = done
            self.told(step, done)

    def _cannot(self, step: Step[Ground]) -> Result | None:
        if self.emulated and step.aws_alone:
            return Result(Outcome.COULD_NOT, f"AWS alone can show it: {step.aws_alone}")
        lacking = [name for name in step.needs if outcome(self.results, name) is not Outcome.PASSED]
        if lacking:
            return Result(Outcome.COULD_NOT, f"it needs {', '.join(lacking)}, which did not pass")
        return None

    def _tried(self, step: Step[Ground]) -> Result:
        try:
            return Result(Outcome.PASSED, figures=step.does(self.ground))
        except NotSo as seen:
            return Result(Outcome.FAILED, str(seen), seen.figures)
        except CouldNot as reason:
            return Result(Outcome.COULD_NOT, str(reason))
        except (Stopped, KeyboardInterrupt) as stopped:
            self._interrupted(step)
            if isinstance(stopped, KeyboardInterrupt):
                raise
            return Result(Outcome.COULD_NOT, "it was interrupted")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _DENIED:
                return Result(Outcome.COULD_NOT, f"these credentials may not: {error}")
            return Result(Outcome.FAILED, _said(error))
        except Exception as error:  # noqa: BLE001 (the next step has nothing to do with it)
            return Result(Outcome.FAILED, _said(error))

    def _interrupted(self, step: Step[Ground]) -> None:
        with self._lock:
            self.results[step.name] = Result(Outcome.COULD_NOT, "it was interrupted")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[-REASON_CHARS_MAX:]}"
