"""
Attention: which of the figures that are counted call for a person, and beyond which limit.

A figure that does adds to one of two metrics, whatever it is of: `Attention` where somebody has to
look now, `Behind` where only if it lasts. So a stage has one alarm for each of the two; what it is
about is in the line that `tell` writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.effects import Clock, Count


@dataclass(frozen=True, slots=True)
class Rule:
    """
    More than *limit* calls for a person; *lasting*: if it does so for a while. What *lingers* may
    stay for days, as somebody else's worker that is away: it is told once a day, or the alarm would
    be on all the time and hide what comes next.
    """

    limit: int = 0
    lasting: bool = False
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """*value* of *metric* is above *limit*. *feed* is empty where it is not known here."""

    feed: str
    metric: str
    value: int
    limit: int


# A lag in pages says little of a burst, so it has to last. An age says by itself that it did.
RULES: Mapping[str, Rule] = {
    "FollowerLag": Rule(limits.LAG_PAGES_MAX, lasting=True),
    "FollowerAge": Rule(limits.FOLLOWER_AGE_S_MAX),
    "FollowerFellOff": Rule(),
    "WakeupsMissed": Rule(lasting=True),
    "PagesLost": Rule(),
    "ConsumersLate": Rule(lingers=True),
    "ConsumersFellOff": Rule(lingers=True),
    "ArchiveLag": Rule(limits.ARCHIVE_LAG_S_MAX, lasting=True),
    "PartsBroken": Rule(),
    "OutboxAge": Rule(limits.OUTBOX_AGE_S_MAX),
    "WritesRefused": Rule(),
    "SendsRefused": Rule(),
    "RelaysStanding": Rule(lingers=True),
    "RelayFellOff": Rule(),
    "RelayBucketsMended": Rule(),
    "RelayUpstreamAge": Rule(limits.UPSTREAM_AGE_S_MAX),
    "RelayLag": Rule(limits.LAG_PAGES_MAX, lasting=True),
}
IN_PAGES = ("FollowerLag", "RelayLag")


def rules(lag_pages_max: int) -> dict[str, Rule]:
    """`RULES` for a deployment that bears a lag of so many pages."""
    return {**RULES, **dict.fromkeys(IN_PAGES, Rule(lag_pages_max, lasting=True))}


@dataclass(slots=True)
class Judge:
    """
    Implements `Count`: passes on what is counted, and judges it.

    *feed* is the one that is looked at now, where one is looked at after the other.
    """

    count: Count
    tell: Callable[[Finding], None]
    clock: Clock
    rules: Mapping[str, Rule] = field(default_factory=lambda: RULES)
    feed: str = ""
    _reminded_ms: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, metric: str, value: int) -> None:
        self.count(metric, value)
        rule = self.rules.get(metric)
        if rule is None or value <= rule.limit or (rule.lingers and not self._remind(metric)):
            return
        if rule.lasting:
            self.count("Behind", 1)
        else:
            self.count("Attention", 1)
        self.tell(Finding(self.feed, metric, value, rule.limit))

    def _remind(self, metric: str) -> bool:
        """Whether it is time again; another process does not know, and tells it once more."""
        now_ms, about = self.clock(), (self.feed, metric)
        if now_ms - self._reminded_ms.get(about, 0) < limits.REMIND_MS:
            return False
        self._reminded_ms[about] = now_ms
        return True
