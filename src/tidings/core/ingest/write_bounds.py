"""
Bounds on who posts: an operation has to be within, and so has the object that it would change.

A key bounded by parents may name its own parent in an operation on any object. So the latest
operation of the object is looked at: in the state, and in the log behind the state's checkpoint.
What is appended meanwhile is looked at, too, as for a correction (`sync.apply`): once a number is
taken, all that comes before it is known. A deleted object is nobody's, so anybody may make it.

One strongly consistent read of each object's row, and of the pages that the state lags behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import OutsideKey, Unavailable
from tidings.core.followers.names import STATE
from tidings.core.model.operations import key_of, parse_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.auth.guard import Allowed
    from tidings.core.effects import Sleep
    from tidings.core.log.append import Precondition
    from tidings.core.log.reader import Reader
    from tidings.core.model.filters import Filter
    from tidings.core.state.rows import StateStore


class Preconditions(Protocol):
    def __call__(self, feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
        """What has to hold for *lines* of who is *allowed* so much; None: nothing."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Implements `Preconditions`."""

    states: StateStore
    reader: Reader
    sleep: Sleep

    def __call__(self, feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
        """The type is part of what an object is: only of parents another one may be stored."""
        if allowed.bound.parents is None:
            return None
        return Standing(self, feed, allowed.bound, [key_of(x) for x in lines])


class Standing:
    """Implements `Precondition`: the objects *keys* of *feed*, as they stand, are in *bound*."""

    def __init__(self, stores: Bounds, feed: str, bound: Filter, keys: Sequence[str]) -> None:
        self._stores, self._feed, self._bound, self._keys = stores, feed, bound, keys
        self._outside = dict.fromkeys(keys, False)
        self._page: int | None = None  # up to where it is known how they stand

    def check(self) -> None:
        while self._read_on():
            pass
        for number, key in enumerate(self._keys):
            if self._outside[key]:
                rule = "changes an object that is outside of what the key may post"
                raise OutsideKey(rule, field=f"operations[{number}]")

    def check_before(self, number: int) -> None:
        for _ in range(limits.BOUND_POLLS_MAX):
            self.check()
            if self._page is not None and self._page >= number - 1:
                return
            self._stores.sleep(limits.BOUND_POLL_MS)
        raise Unavailable(f"{self._feed}: a page before {number} was not written yet")

    def _read_on(self) -> bool:
        """Whether there may be more; rows show at least what is below the checkpoint."""
        if self._page is None:
            known = self._stores.reader.checkpoints.checkpoints(self._feed).get(STATE, 0)
            for row in self._stores.states.find(self._feed, list(self._outside)):
                self._see(row.key, row.line)
            self._page = known
        run = self._stores.reader.read(self._feed, self._page)
        if run.trimmed:
            raise Unavailable(f"{self._feed}: the log ends above the state's page {self._page}")
        for page in run.pages:
            for line in page.lines:
                self._see(key_of(line), line)
            self._page = page.number
        return run.more

    def _see(self, key: str, line: str) -> None:
        """A page that the row has seen already says again what led to it: the last one counts."""
        if key in self._outside:
            operation = parse_line(line)
            self._outside[key] = operation.event != "delete" and not self._bound.matches(operation)
