"""How far named consumers hold the log of a feed, and which of them are late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.consumers import position

if TYPE_CHECKING:
    from tidings.core.consumers.stores import ConsumerStore
    from tidings.core.consumers.worker import Watchers
    from tidings.core.effects import Count
    from tidings.core.model.feeds import Retention


@dataclass(frozen=True, slots=True)
class Holds:
    """What the trimmer asks: retention never passes a consumer, up to *cap*."""

    store: ConsumerStore
    cap: Retention

    def pages(self, feed: str) -> frozenset[int]:
        """The last page that each consumer has handled, where it needs the log."""
        handled = (position.handled(each.position) for each in self.store.consumers(feed))
        return frozenset(page for page in handled if page is not None)


@dataclass(frozen=True, slots=True)
class ConsumerMonitor:
    """What alarms look at. A consumer that is older than *retention* holds the log for itself."""

    watchers: Watchers
    retention: Retention
    count: Count

    def run(self, feed: str) -> None:
        lags = [lag for _, lag in self.watchers.consumers(feed)]
        if lags:
            self.count("ConsumerLag", max(lag.pages for lag in lags))
            self.count("ConsumersLate", sum(lag.ms > self.retention.age_ms for lag in lags))
            self.count("ConsumersFellOff", sum(lag.fell_off for lag in lags))
