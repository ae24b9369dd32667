"""A plan becomes events, and the state follows."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.aws.clock import sleep_ms
from tidings.core.errors import Unavailable
from tidings.core.followers import STATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidings.core.correcting import Corrector, Outcome

    from .place import Place

ATTEMPTS_MAX = 3  # of a batch whose answer was lost; what was applied is found as done
FOLLOW_MS = 60_000  # a follower that starts cold needs two seconds; behind an outage it needs more
POLL_MS = 50


class NotFollowing(Exception):
    """The follower `state` does not get to the end of the log; the message says how far it is."""


@dataclass(slots=True)
class Applied:
    applied: int = 0
    moved: int = 0
    done: int = 0

    def add(self, outcome: Outcome) -> None:
        self.applied += outcome.applied
        self.moved += outcome.moved
        self.done += outcome.done


def through(place: Place) -> int:
    """
    The checkpoint of the follower `state`, once everything that is in the log now is behind it.
    A number that a writer took is not in the log: it may have died since.

    Raises:
        NotFollowing: it does not get there.
    """
    log, followers = place.log(), place.followers()
    head, waited = log.head(place.feed), 0
    while (found := followers.checkpoints(place.feed).get(STATE, 0)) < head:
        if not log.read(place.feed, found, 1):
            return found
        if waited >= FOLLOW_MS:
            sentence = f"the state of {place.feed} stands at page {found:,}, its log at {head:,}"
            raise NotFollowing(f"{sentence}: see `tidings status`")
        sleep_ms(POLL_MS)
        waited += POLL_MS
    return found


def apply(
    corrector: Corrector, feed: str, plan: Path, since: int, advance: Callable[[int], None]
) -> Applied:
    """
    Apply the parts below *plan* in their order; *advance* is told how many lines are done.

    Raises:
        PlanTooOld, Unavailable: as `Corrector.apply`.
    """
    total = Applied()
    for part in sorted(plan.glob("*/part-*.gz")):
        _apply_part(corrector, feed, part, since, total, advance)
    return total


def _apply_part(
    corrector: Corrector,
    feed: str,
    part: Path,
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    behind, complete, attempt = 0, False, 1
    while not complete:
        try:
            with gzip.open(part, "rb") as lines:
                outcome = corrector.apply(feed, since, lines, behind)
        except Unavailable:
            if attempt == ATTEMPTS_MAX:
                raise
            attempt += 1
            continue
        total.add(outcome)
        advance(outcome.behind - behind)
        behind, complete, attempt = outcome.behind, outcome.complete, 1
