"""
Admissions: with what somebody was let in who is still here, and when that ends.

What is open (a stream, a WebSocket) is not asked again for its key. It keeps its admission, and
whoever serves it looks into the profile of the feed, which is read every few seconds anyway: a
key that ends is written down there. So an open connection costs no read of its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidings.core import limits

FORGOTTEN = "*"  # in the place of a key, whose ids hold letters and digits: of all that went
# How long after it was written down somebody may be let in with a key that has ended.
_LET_IN_MS = limits.KEY_AGE_MS + limits.CLOCK_SKEW_MS_MAX

Endings = Mapping[str, int]  # by the id of a key, from when on who was let in with it is let go


@dataclass(frozen=True, slots=True)
class Ended:
    """
    Who was let in with *key* is let go from *from_ms* on; 0: at once.

    *noted_ms* is when that was written down, by the clock of who did.
    """

    key: str
    noted_ms: int
    from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """
    *key* is the id of the key, empty for a password; *until_ms* 0: as long as it wants; *rate* is
    what the key may ask a second, 0 for no bound.
    """

    key: str = ""
    until_ms: int = 0
    rate: int = 0

    @property
    def may_end(self) -> bool:
        return bool(self.key or self.until_ms)

    def has_ended(self, endings: Endings, now_ms: int) -> bool:
        """Whether who has it is to be let go; *endings* are those of the feed."""
        if 0 < self.until_ms <= now_ms:
            return True
        return self.key in endings and endings[self.key] <= now_ms


FOR_GOOD = Admission()


def may_be_forgotten(endings: Endings, since_ms: int, now_ms: int) -> bool:
    """
    Whether the key may have ended and been forgotten of who was let in at *since_ms*.

    Asked of streams, and by the sweep, which may have missed an ending that went before it came
    to the connection: who is let go comes again, and is asked for the key.
    """
    return since_ms < endings.get(FORGOTTEN, 0) <= now_ms


def noted(standing: tuple[Ended, ...], ended: Ended) -> tuple[Ended, ...]:
    """
    *standing* with *ended*, the latest last, without what is of no use any more.

    Nobody is connected for longer than `limits.CONNECTION_MS_MAX`. Above `limits.ENDED_MAX` the
    oldest are forgotten. Then those go that were let in before then with any key.
    """
    useful = ended.noted_ms - limits.CONNECTION_MS_MAX
    kept = [
        each
        for each in standing
        if each.key != ended.key and max(each.noted_ms, each.from_ms) > useful
    ]
    every = (*kept, ended)
    if len(every) <= limits.ENDED_MAX:
        return every
    named = [each for each in every if each.key != FORGOTTEN]
    room = limits.ENDED_MAX - 1
    lost = [each for each in every if each.key == FORGOTTEN] + named[:-room]
    return (Ended(FORGOTTEN, ended.noted_ms, max(map(_last_let_in, lost))), *named[-room:])


def _last_let_in(ended: Ended) -> int:
    """When nobody is let in any more with the key, nor with any of those that are forgotten."""
    if ended.key == FORGOTTEN:
        return ended.from_ms
    return max(ended.noted_ms, ended.from_ms) + _LET_IN_MS
