"""
Tracing: the id under which one request can be found wherever its operations come past.

It is the `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/), 55 characters:
version, trace id of 32 hex digits, parent id of 16, flags. It is kept with the page that a request
becomes; whoever handles the page says so in a line of its log. A page that is not traced costs
nothing: it has no id, and nobody writes a line about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.effects import Clock, NewId

HEADER = "traceparent"
XRAY_HEADER = "x-amzn-trace-id"
SAMPLED = "Sampled=1"  # of that
# A later version may have more behind a dash; of ours nothing may follow.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_XRAY_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
_XRAY_PARENT = re.compile(r"[0-9a-f]{16}")
_SAMPLED = 1  # the one flag that version 00 has
_TRACE = slice(3, 35)
_PARENT = slice(36, 52)
_TOKEN_MS = 1000 // limits.TRACES_PER_S

INGEST = "ingest"  # the step that is no follower's
OFF, ASKED, ALL = "off", "asked", "all"
MODES = (OFF, ASKED, ALL)


class Passage(NamedTuple):
    """
    A page came past *step*: `INGEST`, or the name of a follower that has handled it.

    *ms* is how long ago the page was committed. *trace* is empty where it is told because it is
    late; of *pages* handled at once, it is the oldest one.
    """

    step: str
    feed: str
    page: int
    ms: int
    trace: str = ""
    pages: int = 1


Tell = Callable[[Passage], None]


def nobody(_: Passage) -> None:
    """Implements `Tell`: where there is no log."""


def trace_id(traceparent: str) -> str:
    """What all lines and events of a trace share."""
    return traceparent[_TRACE]


def made(id_: str) -> str:
    """The `traceparent` of a trace that begins with *id_*, 32 random hex digits."""
    return f"00-{id_}-{id_[:16]}-{_SAMPLED:02x}"


def packed(traceparent: str) -> bytes:
    """In 24 bytes; `unpacked` is the inverse, because what is kept is sampled, of version 00."""
    return bytes.fromhex(traceparent[_TRACE] + traceparent[_PARENT])


def unpacked(stored: bytes) -> str:
    text = stored.hex()
    return f"00-{text[:32]}-{text[32:]}-{_SAMPLED:02x}"


def asked(headers: Mapping[str, str]) -> str | None:
    """
    The `traceparent` of a caller that wants its request traced; *headers* are in lower case.

    "" where the caller says that it is not sampled, None where it says nothing: what breaks a rule
    is nothing. A valid `traceparent` counts before `X-Amzn-Trace-Id`, because it is the caller's
    own; gateways and load balancers of AWS's add the other one to every request.
    """
    given = _w3c(headers.get(HEADER, ""))
    return _xray(headers.get(XRAY_HEADER, "")) if given is None else given


def _w3c(text: str) -> str | None:
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace, parent, flags, rest = match.groups()
    zero = not (trace.strip("0") and parent.strip("0"))
    if zero or version == "ff" or (version == "00" and rest):
        return None
    return f"00-{trace}-{parent}-{_SAMPLED:02x}" if int(flags, 16) & _SAMPLED else ""


def _xray(text: str) -> str | None:
    """`Sampled=0` is no wish: Lambda says so of each call that X-Ray does not look at."""
    if SAMPLED not in text:
        return None
    fields = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    root, parent = _XRAY_ROOT.fullmatch(fields.get("Root", "")), fields.get("Parent", "")
    if root is None or fields.get("Sampled") != "1" or not _XRAY_PARENT.fullmatch(parent):
        return None
    return _w3c(f"00-{root[1]}{root[2]}-{parent}-01")


@dataclass(slots=True)
class Tracer:
    """
    Which requests are traced; *tell* is told of them.

    *mode* says whose: of callers that ask (`ASKED`), also of those that say nothing (`ALL`), or
    nobody's. Many instrumented callers ask with each request, so a process takes up
    `limits.TRACES_PER_S` a second and some more at once; time is only looked at for those.
    """

    mode: str
    clock: Clock
    new_id: NewId
    tell: Tell
    _spent_ms: int = field(default=0)  # up to when the tokens that were taken are paid for

    def choose(self, given: str | None) -> str:
        """The `traceparent` to keep of a request with what `asked` said; "" for none."""
        if self.mode == OFF or given == "" or (given is None and self.mode == ASKED):
            return ""
        now_ms = self.clock()
        paid_ms = max(self._spent_ms, now_ms - limits.TRACES_AT_ONCE * _TOKEN_MS)
        if paid_ms + _TOKEN_MS > now_ms:
            return ""
        self._spent_ms = paid_ms + _TOKEN_MS
        return given or made(self.new_id())

    def ingested(self, feed: str, page: int, at_ms: int, trace: str) -> None:
        """Tell that *page*, committed at *at_ms*, is in the log, if it is traced."""
        if trace:
            self.tell(Passage(INGEST, feed, page, max(0, self.clock() - at_ms), trace_id(trace)))


def _no_time() -> int:
    raise AssertionError("nothing is traced")


def _no_id() -> str:
    raise AssertionError("nothing is traced")


def untraced() -> Tracer:
    """A tracer of nothing."""
    return Tracer(OFF, _no_time, _no_id, nobody)
