"""Check that a restricted producer changes only objects that are within its bound.

The bound of a producer is the part of the feed to which its key is restricted. A producer with a
key that is restricted by parents could name its own parent in an operation on any object. Therefore
the object's latest operation is checked in addition to the new one. That operation is in the state,
or in the log after the state's checkpoint; both are read strongly consistently. A deleted object
belongs to no producer, so every producer may create it again.

Other producers may append to the log during the check. Therefore the check is repeated after the
page number was taken, as for a correction (`sync.apply`). The repeated check waits until every page
with a lower number can be read, and reads these pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import OutsideKey, Unavailable
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import has_object, key_of, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.auth.guard import Allowed
    from tidings.core.effects import Sleep
    from tidings.core.log.append import Precondition
    from tidings.core.log.reader import Reader
    from tidings.core.model.filters import Filter
    from tidings.core.state.rows import StateStore

    # A function that takes a feed, the rights of a producer on it, and the lines to append. It
    # returns the precondition for the append, or None.
    Preconditions = Callable[[str, Allowed, Sequence[str]], Precondition | None]


@dataclass(frozen=True, slots=True)
class ParentBoundCheck:
    """Implements `Preconditions` with the state and the log."""

    states: StateStore
    reader: Reader
    sleep: Sleep

    def __call__(self, feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
        """Return a precondition if the key is restricted by parents, else None.

        The caller has checked the types and parents of *lines*. The type is part of an object's
        identity, so only the stored parents of the object can be outside the bound.
        """
        if allowed.bound.parents is None:
            return None
        return StoredObjectsInBound(self, feed, allowed.bound, [key_of(x) for x in lines])


class CurrentObjects:
    """The latest operations of the objects *keys* of *feed*, read from the state and then the log.

    A subclass implements `Precondition`: its `_see` receives each operation of the objects, and its
    `_decide` raises an error if the condition does not hold.
    """

    def __init__(self, stores: ParentBoundCheck, feed: str, keys: Sequence[str]) -> None:
        self._stores, self._feed, self._keys = stores, feed, dict.fromkeys(keys)
        self._page: int | None = None  # the last page that was read

    def read(self) -> None:
        """Read up to the end of the log, or to the first hole.

        Raises:
            Unavailable: pages after the state's checkpoint are gone.
        """
        while self._read_on():
            pass

    def check(self) -> None:
        self.read()
        self._decide()

    def check_before(self, number: int) -> None:
        for _ in range(limits.BOUND_POLLS_MAX):
            self.check()
            if self._page is not None and self._page >= number - 1:
                return
            self._stores.sleep(limits.BOUND_POLL_MS)
        raise Unavailable(f"{self._feed}: a page before {number} was not written yet")

    def _read_on(self) -> bool:
        """Read the rows at the first call, and pages at each call; return True if more may follow.

        Read the checkpoint before the rows, so that the rows contain all pages up to it.
        """
        if self._page is None:
            known = self._stores.reader.checkpoints.checkpoints(self._feed).get(STATE, 0)
            for row in self._stores.states.find(self._feed, list(self._keys)):
                self._see(row.key, row.line, (row.page, row.slot))
            self._page = known
        run = self._stores.reader.read(self._feed, self._page)
        if run.trimmed:
            raise Unavailable(f"{self._feed}: the log begins after the state's page {self._page}")
        for page in run.pages:
            for slot, line in page.entries():
                if has_object(line) and (key := key_of(line)) in self._keys:
                    self._see(key, line, (page.number, slot))
            self._page = page.number
        return run.more

    def _see(self, key: str, line: str, at: tuple[int, int]) -> None:
        """Receive *line*, the operation at the position *at* of the object *key*.

        A row may already contain an operation of the pages that are read after the row. Those pages
        then repeat the operation, and the object's last operation is the same.
        """
        raise NotImplementedError

    def _decide(self) -> None:
        raise NotImplementedError


class StoredObjectsInBound(CurrentObjects):
    """Implements `Precondition`: check that the objects *keys* of *feed* are within *bound*."""

    def __init__(
        self, stores: ParentBoundCheck, feed: str, bound: Filter, keys: Sequence[str]
    ) -> None:
        super().__init__(stores, feed, keys)
        self._bound, self._of_lines = bound, keys
        self._outside = dict.fromkeys(keys, False)

    def _decide(self) -> None:
        for number, key in enumerate(self._of_lines):
            if self._outside[key]:
                rule = "must change an object that matches the parents of the key"
                raise OutsideKey(rule, field=f"operations[{number}]")

    def _see(self, key: str, line: str, at: tuple[int, int]) -> None:
        operation = parse_line(line)
        self._outside[key] = operation.event != "delete" and not self._bound.matches(operation)
