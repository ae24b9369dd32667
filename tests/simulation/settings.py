"""Settings of a deployment, and those that it had before: for a while both are at work.

A process keeps the settings that it began with, even after a later deployment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidings.core import limits
from tidings.core.model.feeds import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

HOUR_MS: Final = 3_600_000
_RETENTIONS_MS: Final = (limits.RETENTION_MS_MIN, 3 * HOUR_MS, 24 * HOUR_MS)
_RECORDS: Final = (0, 0, 20)
_CAPS_MS: Final = (5 * HOUR_MS, 30 * HOUR_MS)
_TOMBSTONE_SLACK_MS: Final = 6 * HOUR_MS  # a week, but so short that a lull outlasts it
TOMBSTONE_MS: Final = limits.RETENTION_MS_MIN + _TOMBSTONE_SLACK_MS  # where nothing is deployed
_RUNS_MS: Final = 60_000  # longer than any function that trims the log
_OVERLAP_MS: Final = 60_000  # until the last process with the settings from before has begun


@dataclass(frozen=True)
class Settings:
    """*cap_ms* is how long the log waits for named consumers, *page_ms* how long a page stays."""

    retention: Retention
    cap_ms: int
    page_ms: int

    @property
    def tombstone_ms(self) -> int:
        return self.retention.age_ms + _TOMBSTONE_SLACK_MS


def first(random: Random, page_ms: int | None) -> Settings:
    """Return the first settings of a world; *page_ms* replaces the lifetime of pages."""
    return _made(_RETENTIONS_MS[0], random.choice(_RECORDS), _CAPS_MS[0], page_ms)


def _made(age_ms: int, records_min: int, cap_ms: int, page_ms: int | None) -> Settings:
    kept_ms = max(age_ms, cap_ms) + limits.TTL_SLACK_MS if page_ms is None else page_ms
    return Settings(Retention(age_ms, records_min), cap_ms, kept_ms)


class Deployment:
    """*now_ms* is the time of the world."""

    def __init__(self, random: Random, now_ms: Callable[[], int], page_ms: int | None) -> None:
        self._random, self._now_ms, self._page_ms = random, now_ms, page_ms
        self.settings = self._before = first(random, page_ms)
        self._both_until_ms = 0
        self.ages_ms: Sequence[int] = _RETENTIONS_MS  # the possible ages

    def deploy(self) -> None:
        """Others than before."""
        choice = self._random.choice
        self._before, self._both_until_ms = self.settings, self._now_ms() + _OVERLAP_MS
        made = _made(choice(self.ages_ms), choice(_RECORDS), choice(_CAPS_MS), self._page_ms)
        self.settings = made

    @property
    def least_cap_ms(self) -> int:
        """Return the smallest cap of all processes that may be at work now."""
        both = self._now_ms() < self._both_until_ms + _RUNS_MS
        return min(self.settings.cap_ms, self._before.cap_ms if both else self.settings.cap_ms)

    def begins_with(self) -> Settings:
        """Return the settings of a process that begins now."""
        if self._now_ms() < self._both_until_ms and self._random.random() < 0.5:
            return self._before
        return self.settings

    def begin(self, *, records_min: int = 0, cap_ms: int = _CAPS_MS[0]) -> None:
        """Set the settings from the start on, for a plan that chooses them."""
        made = _made(_RETENTIONS_MS[0], records_min, cap_ms, self._page_ms)
        self.settings = self._before = made
