"""
Admissions: with what somebody was let in who is still here, and when that ends.

What is open (a stream, a WebSocket) is not asked again for its key. It keeps its admission, and
whoever serves it looks into the profile of the feed, which is read every few seconds anyway: a
key that ends is written down there. So an open connection costs no read of its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import limits

if TYPE_CHECKING:
    from .profiles import Profile

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
    """*key* is the id of the key, empty for a password; *until_ms* 0: as long as it wants."""

    key: str = ""
    until_ms: int = 0

    @property
    def may_end(self) -> bool:
        return bool(self.key or self.until_ms)

    def has_ended(self, endings: Endings, now_ms: int) -> bool:
        """Whether who has it is to be let go; *endings* are those of the feed."""
        if 0 < self.until_ms <= now_ms:
            return True
        return self.key in endings and endings[self.key] <= now_ms


FOR_GOOD = Admission()


def endings_of(profile: Profile) -> Endings:
    return {each.key: each.from_ms for each in profile.ended}


def noted(standing: tuple[Ended, ...], ended: Ended) -> tuple[Ended, ...]:
    """
    *standing* with *ended*, the latest last, without what is of no use any more.

    Nobody is connected for longer than `limits.CONNECTION_MS_MAX`. Above `limits.ENDED_MAX` the
    oldest go: the sweep, which looks at every connection each minute, has let theirs go.
    """
    useful = ended.noted_ms - limits.CONNECTION_MS_MAX
    kept = [
        each
        for each in standing
        if each.key != ended.key and max(each.noted_ms, each.from_ms) > useful
    ]
    return (*kept, ended)[-limits.ENDED_MAX :]
