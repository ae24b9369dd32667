"""Trace requests by an id that each step logs when it handles the operations of the request.

The id is the `traceparent` of W3C Trace Context (https://www.w3.org/TR/trace-context/). It has 55
characters: a version, a trace id of 32 hex digits, a parent id of 16 hex digits, and flags. The id
is stored with the page of the request. A page without an id is not traced and causes no log lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.effects import TraceRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.effects import Runtime

HEADER = "traceparent"
XRAY_HEADER = "x-amzn-trace-id"
SAMPLED = "Sampled=1"  # part of `XRAY_HEADER`
# Later versions of the header may have more fields after another dash; version 00 may not.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_XRAY_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
_XRAY_PARENT = re.compile(r"[0-9a-f]{16}")
_SAMPLED = 1  # the only flag of version 00
_TRACE = slice(3, 35)
_PARENT = slice(36, 52)
_TOKEN_MS = 1000 // limits.TRACES_PER_S

INGEST = "ingest"  # the step that appends a page; all other steps are followers
OFF, REQUESTED, ALL = "off", "asked", "all"
MODES = (OFF, REQUESTED, ALL)


def trace_id(traceparent: str) -> str:
    """Return the trace id in *traceparent*, which all log lines of a trace have."""
    return traceparent[_TRACE]


def new_traceparent(id_: str) -> str:
    """Return the `traceparent` of a new trace; *id_* is 32 random hex digits."""
    return f"00-{id_}-{id_[:16]}-{_SAMPLED:02x}"


def pack_trace(traceparent: str) -> bytes:
    """Return *traceparent* as 24 bytes.

    The version and the flags are not stored, because a stored trace always has version 00 and is
    sampled (`unpack_trace`).
    """
    return bytes.fromhex(traceparent[_TRACE] + traceparent[_PARENT])


def unpack_trace(stored: bytes) -> str:
    text = stored.hex()
    return f"00-{text[:32]}-{text[32:]}-{_SAMPLED:02x}"


def parse_trace_headers(headers: Mapping[str, str]) -> str | None:
    """Return the `traceparent` of a caller that requests tracing.

    Return "" if the caller's `traceparent` is not sampled, and None if the caller sends no valid
    header. The names of *headers* are in lower case. A valid `traceparent` takes precedence over
    `X-Amzn-Trace-Id`, because the caller sets the former, while gateways and load balancers of AWS
    add the latter to every request.
    """
    given = _w3c(headers.get(HEADER, ""))
    return _xray(headers.get(XRAY_HEADER, "")) if given is None else given


def _w3c(text: str) -> str | None:
    match = _TRACEPARENT.fullmatch(text) if text else None
    if match is None:
        return None
    version, trace, parent, flags, rest = match.groups()
    zero = not (trace.strip("0") and parent.strip("0"))
    if zero or version == "ff" or (version == "00" and rest):
        return None
    return f"00-{trace}-{parent}-{_SAMPLED:02x}" if int(flags, 16) & _SAMPLED else ""


def _xray(text: str) -> str | None:
    """Parse an X-Ray header.

    Ignore a header that is not sampled, because Lambda adds such a header to every untraced call.
    """
    if SAMPLED not in text:
        return None
    fields = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    root, parent = _XRAY_ROOT.fullmatch(fields.get("Root", "")), fields.get("Parent", "")
    if root is None or fields.get("Sampled") != "1" or not _XRAY_PARENT.fullmatch(parent):
        return None
    return _w3c(f"00-{root[1]}{root[2]}-{parent}-01")


@dataclass(slots=True)
class Tracer:
    """A selector of the requests to trace. It passes records of traced pages to `Runtime.trace`.

    *mode* is `REQUESTED` to trace only callers that request a trace, `ALL` to trace also callers
    that send no header, or `OFF`. Many instrumented callers request a trace every time, so a
    process traces at most `limits.TRACES_PER_S` requests per second, after a burst of
    `limits.TRACES_AT_ONCE`.
    """

    mode: str
    runtime: Runtime
    _spent_ms: int = field(default=0)  # the time up to which the rate is used up

    def choose(self, given: str | None) -> str:
        """Return the `traceparent` to store for a request, or "" for no trace.

        *given* is the result of `parse_trace_headers`.
        """
        if self.mode == OFF or given == "" or (given is None and self.mode == REQUESTED):
            return ""
        now_ms = self.runtime.steady()
        paid_ms = max(min(self._spent_ms, now_ms), now_ms - limits.TRACES_AT_ONCE * _TOKEN_MS)
        if paid_ms + _TOKEN_MS > now_ms:
            return ""
        self._spent_ms = paid_ms + _TOKEN_MS
        return given or new_traceparent(self.runtime.new_id())

    def report_ingested(self, feed: str, page: int, at_ms: int, trace: str) -> None:
        """Report that *page*, committed at *at_ms*, is in the log, unless *trace* is empty."""
        if trace:
            ms = max(0, self.runtime.clock() - at_ms)
            self.runtime.trace(TraceRecord(INGEST, feed, page, ms, trace_id(trace)))
