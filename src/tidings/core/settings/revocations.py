"""
Admissions: the credential with which a connection was accepted, and when it ends.

The key of an open stream or WebSocket is not read again. The connection keeps its admission, and
the process that serves it reads the profile of the feed every few seconds anyway: keys that ended
are listed there. An open connection therefore costs no read of its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidings.core import limits

FORGOTTEN = "*"  # in place of a key id, which has letters and digits: every ending that was dropped
# How long after an ending was recorded a process may still accept the key.
_LET_IN_MS = limits.KEY_AGE_MS + limits.CLOCK_SKEW_MS_MAX

Endings = Mapping[str, int]  # by key id, when connections admitted with it must be closed


@dataclass(frozen=True, slots=True)
class Ended:
    """
    The end of a key: connections admitted with *key* are closed from *from_ms* on; 0: at once.

    *noted_ms* is when the ending was recorded, by the clock of the process that did.
    """

    key: str
    noted_ms: int
    from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """
    The credential of a connection.

    *key* is the id of the key, empty for a password; *until_ms* is 0 for no end; *rate* is the
    maximum of requests per second, 0 for no bound.
    """

    key: str = ""
    until_ms: int = 0
    rate: int = 0

    @property
    def may_end(self) -> bool:
        return bool(self.key or self.until_ms)

    def has_ended(self, endings: Endings, now_ms: int) -> bool:
        """Return True if its connection must be closed; *endings* are those of the feed."""
        if 0 < self.until_ms <= now_ms:
            return True
        return self.key in endings and endings[self.key] <= now_ms


FOR_GOOD = Admission()


def may_be_forgotten(endings: Endings, since_ms: int, now_ms: int) -> bool:
    """
    Return True if the key of a connection accepted at *since_ms* may have a dropped ending.

    Streams and the sweep check this, since the sweep may have missed an ending that was dropped
    before it reached the connection. A client that is disconnected so reconnects with its key.
    """
    return since_ms < endings.get(FORGOTTEN, 0) <= now_ms


def with_ending(endings: tuple[Ended, ...], ended: Ended) -> tuple[Ended, ...]:
    """
    Return *endings* and *ended*, the latest last, without those that are no longer needed.

    No connection lives longer than `limits.CONNECTION_MS_MAX`. Above `limits.ENDED_MAX` the oldest
    endings are dropped; then every connection accepted with any key before that time is closed.
    """
    useful = ended.noted_ms - limits.CONNECTION_MS_MAX
    kept = [
        each
        for each in endings
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
    """Return the time after which no process accepts the key, or any key that *ended* dropped."""
    if ended.key == FORGOTTEN:
        return ended.from_ms
    return max(ended.noted_ms, ended.from_ms) + _LET_IN_MS
