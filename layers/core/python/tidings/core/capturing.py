"""
Capturing: the writes in an owner's table become operations of a feed.

What is told together is appended together: a page costs the same whatever it holds. Its claim is
named after its first write. Told again from there on, fewer or more of them, the page says how many
it holds, and only the others are appended. Who tells them again from the middle of a page, as
after a crash, repeats the rest of it in its order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from . import limits
from .errors import Rejected
from .outboxes import Letter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .append import Appender
    from .captures import Capture, Write
    from .ports import Count, Outbox

WRITE = "write"  # the kind of a letter that names a write nothing could be made of
_FINGERPRINT = "table"  # the same for all portions of the writes that begin with the same one


@dataclass(frozen=True, slots=True)
class _Told:
    write: Write
    lines: Sequence[str]

    @property
    def size(self) -> int:
        return sum(len(line.encode()) + 1 for line in self.lines)


@dataclass(frozen=True, slots=True)
class Capturer:
    """*outbox* keeps what no operation can be made of, for somebody to look at."""

    capture: Capture
    appender: Appender
    outbox: Outbox
    count: Count

    def run(self, writes: Sequence[Write]) -> None:
        """
        Append what *writes* mean, in their order, each once.

        Raises:
            Unavailable: a store did not answer; the same writes may be told again.
        """
        left = [told for write in writes if (told := self._told(write)).lines]
        while left:
            left = left[self._append(left) :]

    def _append(self, left: Sequence[_Told]) -> int:
        """How many of those in front are in the log now: at least one."""
        lines = [line for told in left[: _fitting(left)] for line in told.lines]
        key = f"table/{left[0].write.id}"
        page = self.appender.append_once(self.capture.feed, lines, key, _FINGERPRINT)
        ends = accumulate(len(told.lines) for told in left)
        held = max(1, sum(end <= len(page.lines) for end in ends))
        self.count("WritesCaptured", held)
        return held

    def _told(self, write: Write) -> _Told:
        try:
            return _Told(write, self.capture.lines_of(write))
        except Rejected as error:
            body = json.dumps({"event": write.event, "keys": dict(write.keys)})
            letter = Letter(f"{write.at_ms:013d}-{write.id}", WRITE, body)
            self.outbox.put_aside(self.capture.feed, letter, str(error))
            self.count("WritesRefused", 1)
            return _Told(write, ())


def _fitting(left: Sequence[_Told]) -> int:
    """How many of those in front make one page: at least one, which fits by itself."""
    lines = accumulate(len(told.lines) for told in left)
    sizes = accumulate(told.size for told in left)
    fits = [
        count <= limits.REQUEST_OPERATIONS_MAX and size <= limits.CAPTURE_BYTES
        for count, size in zip(lines, sizes, strict=True)
    ]
    return max(1, sum(fits))
