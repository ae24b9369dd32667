"""Apply a plan to the log, and wait until the state includes it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.aws.effects import sleep_ms
from tidings.core.errors import Unavailable
from tidings.core.sync.apply import Outcome

if TYPE_CHECKING:
    from tidings.sync.feed import Corrections, Progress

ATTEMPTS_MAX = 3  # per batch if a response is lost; corrections that were applied count as done
STALL_MS = 300_000  # after a crash the follower resumes within two sweeps; this is five
POLL_MS = 50  # initially: a running follower is done at once
POLL_MS_MAX = 1_000  # upper limit of the doubled interval


class NotFollowing(Exception):
    """The follower `state` does not reach the end of the log; the message says its position."""


@dataclass(slots=True)
class Applied:
    applied: int = 0
    moved: int = 0
    done: int = 0

    def add(self, outcome: Outcome) -> None:
        self.applied += outcome.applied
        self.moved += outcome.moved
        self.done += outcome.done


def through(progress: Progress, *, stall_ms: int = STALL_MS) -> int:
    """
    Wait until the follower `state` has reached the current end of the log; return its checkpoint.

    The total time is unlimited while it advances.

    Raises:
        NotFollowing: it did not advance for *stall_ms*.
    """
    end, reached = progress.end(), progress.checkpoint()
    waited, poll = 0, POLL_MS
    while reached < end:
        if waited >= stall_ms:
            sentence = (
                f"the state of {progress.feed} stands at page {reached:,}, its log at {end:,}"
            )
            raise NotFollowing(f"{sentence}, for {stall_ms // 1000} s: see `tidings status`")
        sleep_ms(poll)
        checkpoint = progress.checkpoint()
        waited = 0 if checkpoint > reached else waited + poll
        reached, poll = checkpoint, min(2 * poll, POLL_MS_MAX)
    return reached


def apply(
    corrector: Corrections,
    feed: str,
    plan: Path,
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    """
    Apply the parts below *plan* in order; call *advance* with the number of lines done.

    *total* counts the outcomes, even if an error is raised.

    Raises:
        PlanTooOld, Unavailable: see `Corrector.apply`.
    """
    for part in sorted(plan.glob("*/*.gz")):
        _apply_part(corrector, feed, part, since, total, advance)


def _apply_part(
    corrector: Corrections,
    feed: str,
    part: Path,
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    with ExitStack() as opened:

        def lines() -> Iterable[bytes]:
            return opened.enter_context(gzip.open(part, "rb"))

        apply_lines(corrector, feed, lines, since, total, advance)


def apply_lines(
    corrector: Corrections,
    feed: str,
    lines: Callable[[], Iterable[bytes]],
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    """Apply one part like `apply`; *lines* returns all of its lines at each call."""
    behind, complete, attempt = 0, False, 1
    while not complete:
        try:
            outcome = corrector.apply(feed, since, lines(), behind)
        except Unavailable:
            if attempt == ATTEMPTS_MAX:
                raise
            attempt += 1
            continue
        total.add(outcome)
        advance(outcome.behind - behind)
        behind, complete, attempt = outcome.behind, outcome.complete, 1
