"""Decide which metric values need an operator, by a limit per metric.

A value above the limit of its metric increases one of two metrics: `Attention` if an operator must
act now, `Behind` if an operator must act only if the condition persists. A stage therefore needs
only one alarm for each of these two metrics. The alert that is passed to `notify` names the metric
and the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import has_passed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.effects import Clock, Count


@dataclass(frozen=True, slots=True)
class Rule:
    """The alarm rule of one metric.

    A value above *limit* needs an operator. If *lasting* is True, an operator is needed only if
    values stay above *limit*. If *lingers* is True, values may stay above *limit* for days, for
    example while a worker of another team is stopped. Such values are reported only once a day,
    because the alarm would otherwise stay on and hide the next alert.
    """

    limit: int = 0
    lasting: bool = False
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class Alert:
    """The *value* of *metric* exceeds *limit*. *feed* is empty if it is unknown."""

    feed: str
    metric: str
    value: int
    limit: int


# A lag in pages may be caused by a short burst, so it must persist before it needs an operator. A
# high age shows by itself that the condition has persisted.
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
    """Return `RULES` for a deployment that tolerates a lag of *lag_pages_max* pages."""
    return {**RULES, **dict.fromkeys(IN_PAGES, Rule(lag_pages_max, lasting=True))}


@dataclass(slots=True)
class AlarmRules:
    """An implementation of `Count` that forwards each value and applies the rule of its metric.

    *feed* is the feed that is being examined. A caller that examines several feeds sets *feed*
    before each of them.
    """

    count: Count
    notify: Callable[[Alert], None]
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
        self.notify(Alert(self.feed, metric, value, rule.limit))

    def _remind(self, metric: str) -> bool:
        """Return True if *metric* of `feed` was not reported in the last `limits.REMIND_MS`.

        Each process records only its own reports, so several processes may report the same metric.
        """
        now_ms, about = self.clock(), (self.feed, metric)
        if not has_passed(self._reminded_ms.get(about, 0), now_ms, limits.REMIND_MS):
            return False
        self._reminded_ms[about] = now_ms
        return True
