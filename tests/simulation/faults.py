"""Faults: which kinds a seed has, how often they strike, and how often they did.

Each seed switches about half of the kinds on (a world with every fault at once hides as much
as one without any). `calm` ends them all, so that recovery can be observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

# Kind -> how likely at each occasion while it is switched on. Occasions of the first group
# are the two moments around each effect of a process; the others are drawn at their call sites.
RATES: Final = {
    "crash": 0.004,
    "lost_request": 0.004,
    "lost_answer": 0.004,
    "freeze": 0.0015,  # until the function's time limit, more often than not
    "slow": 0.003,  # seconds pass before an effect
    "late_write": 0.08,  # of a batch of the state some lands minutes after its writer has ended
    "part_write": 0.08,  # likewise some at once, and the rest never, or late
    "stale_profile": 0.1,  # a follower remembers the feed before removed parents were kept
    "slow_writer": 0.2,  # a pause between number and page, long enough to be overtaken
    "slow_change": 0.3,  # a change of a subscription is posted long after it was decided
    "crash_amid_sends": 0.02,  # some clients got the message, the checkpoint has not moved
    "crash_in_doubt": 0.4,  # a process without an answer crashes before it acts on it
    "stale_read": 0.3,  # an eventually consistent read misses a page, written a moment ago
    "slow_filler": 0.5,  # a pause between seeing a hole and filling it
    "sweep_repeated": 0.5,  # a schedule fires at least once
    "wake_lost": 0.25,
    "wake_repeated": 0.25,
    "wake_late": 0.25,
    "vanish": 0.02,  # a client disappears silently; messages to it are swallowed
    "goodbye_lost": 0.5,  # the notice that a connection closed never comes
    "send_unanswered": 0.02,  # a push arrives later, or never, and the sender cannot know
    "throttle": 0.02,  # a push is refused for a moment
    "throttle_long": 0.006,  # so long that the connection is cut
    "answer_to_producer_lost": 0.15,
    "twin_retry": 0.3,  # two requests with one Idempotency-Key at the same time
    "expire": 0.5,  # TTL deletes this one of the expired pages now, the others later
    "skew": 1.0,  # no two clocks agree
    "deploy": 0.6,  # other settings come while functions run, once in each chaos and lull
    "lull": 1.0,  # hours pass: retention trims, pages and tombstones expire
}
# What clients do without being broken; on without faults too, off only when it is calm.
CLIENT_ACTIONS: Final = {
    "hang_up": 0.08,  # a consumer disconnects and resumes
    "absent": 0.05,  # a consumer is away for the rest of the storm, and through a lull
    "unsubscribe": 0.25,
    "impatient": 0.15,  # a client unsubscribes before its subscription is confirmed
}
LEADS_TO: Final = (
    "clock was fast",
    "clock was slow",
    "connection was cut",
    "filler came late",
    "floor was raised",
    "frame came late",
    "hole was filled",
    "killed at the time limit",
    "what came again was left out",
    "late row was outdated",
    "leave in doubt",
    "leave was told",
    "page expired",
    "reset was told",
    "row was told",
    "socket was gone",
    "writer was overtaken",
)
GROUP_OF_EFFECTS: Final = ("crash", "lost_request", "lost_answer", "freeze", "slow")


class Faults:
    def __init__(self, random: Random, *, clear: bool = False, without: frozenset[str]) -> None:
        self._random, self._without = random, without
        self.rates = {
            kind: 0.0 if clear or kind in without or random.random() < 0.35 else rate
            for kind, rate in RATES.items()
        } | CLIENT_ACTIONS
        self.fired: Counter[str] = Counter()
        # A run of many seeds must have met all of these, or it proves nothing.
        self.expected = set() if clear else {*RATES, *CLIENT_ACTIONS} - without
        self._effect_rate = sum(self.rates[kind] for kind in GROUP_OF_EFFECTS)

    def add(self, rates: Mapping[str, float], leads_to: Sequence[str] = ()) -> None:
        """Add kinds that only some worlds have, and their effects; or remove some."""
        self.rates |= {kind: 0.0 if kind in self._without else rates[kind] for kind in rates}
        self.expected |= {*rates, *leads_to}
        self.expected -= {kind for kind in rates if not rates[kind]} | self._without
        self._effect_rate = sum(self.rates[kind] for kind in GROUP_OF_EFFECTS)

    def calm(self) -> None:
        """Start no faults from now on; those in progress continue."""
        self.rates = dict.fromkeys(self.rates, 0.0)
        self._effect_rate = 0.0

    def saw(self, what: str, times: int = 1) -> None:
        """Something that faults lead to has happened."""
        self.fired[what] += times

    def strikes(self, kind: str) -> bool:
        rate = self.rates.get(kind, 0.0)  # some worlds alone have it
        if not rate or self._random.random() >= rate:
            return False
        self.fired[kind] += 1
        return True

    def at_effect(self) -> str:
        """Return the fault that strikes at one effect of a process, or nothing."""
        if not self._effect_rate:
            return ""
        dice = self._random.random()
        if dice >= self._effect_rate:
            return ""
        for kind in GROUP_OF_EFFECTS:
            if dice < self.rates[kind]:
                self.fired[kind] += 1
                return kind
            dice -= self.rates[kind]
        return ""
