"""Ingesting: a producer's request becomes one page, or an error that says why not."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.auth.guard import INGEST
from tidings.core.errors import (
    InvalidItem,
    InvalidKey,
    InvalidOperation,
    OutsideKey,
    Rejected,
    TooLarge,
    Unavailable,
)
from tidings.core.model import feeds
from tidings.core.model.json_body import lines_from, reader_for
from tidings.core.model.operations import parse_line
from tidings.core.tracing import Tracer, untraced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.counters import Counters
    from tidings.core.effects import Clock, Count
    from tidings.core.ingest.write_bounds import Preconditions
    from tidings.core.log.append import Appender, Precondition
    from tidings.core.model.pages import Page

_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Request:
    """
    *key* is the Idempotency-Key and *credential* the producer's, None where there is none.

    *trace* is what `tracing.asked` found. *late* returns the body of a request that is looked at
    before its body: who asks is checked before that.
    """

    feed: str
    body: bytes
    content_type: str
    key: str | None = None
    credential: Credential | None = None
    trace: str | None = None
    late: Callable[[], bytes] | None = None

    def arrived(self) -> Request:
        """Return the request with its body."""
        return replace(self, body=self.late(), late=None) if self.late else self


class Lines(Protocol):
    """The lines of the log that the body of a request means."""

    def __call__(self, feed: str, body: bytes, content_type: str, *, now_ms: int) -> list[str]: ...


def _operations(feed: str, body: bytes, content_type: str, *, now_ms: int) -> list[str]:
    """Implements `Lines`: the same for every feed."""
    return lines_from(body, content_type, now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class Ingester:
    """*required* says what has to hold of who is bounded; *lines* reads a body."""

    appender: Appender
    clock: Clock
    count: Count
    feeds: frozenset[str]
    tallies: Counters
    guard: Guard
    required: Preconditions
    lines: Lines = _operations
    tracer: Tracer = field(default_factory=untraced)

    def accept(self, request: Request) -> list[str]:
        """
        Append the operations of *request*; their event ids, in order.

        Raises:
            Rejected: one of its subclasses; nothing was written.
            Unavailable: nobody knows whether it was written; the producer tries again.
        """
        try:
            page, count = self._append(request)
        except Rejected as error:
            self.count("RequestsRejected", 1)
            if isinstance(error, InvalidOperation | InvalidItem | TooLarge):
                self._tally(request.feed)
            raise
        self.count("OperationsIngested", count)
        prefix = page.id_prefix
        return [f"{prefix}{slot:06x}" for slot in range(count)]

    def _tally(self, feed: str) -> None:
        """Only of operations that were refused, and never instead of the answer."""
        with suppress(Unavailable):
            self.tallies.refuse(feed)

    def _append(self, request: Request) -> tuple[Page, int]:
        """The page, and how many operations it holds."""
        feed = feeds.check_known(request.feed, self.feeds)
        allowed = INGEST.admit(self.guard, feed, request.credential)
        self.appender.check_writable(feed)  # before anybody is told how to spell what is refused
        key = None if request.key is None else check_key(request.key)
        reader_for(request.content_type)  # before a body is waited for
        request = request.arrived()
        lines = self.lines(feed, request.body, request.content_type, now_ms=self.clock())
        check_within(allowed, lines)
        required = self.required(feed, allowed, lines)
        own = key and allowed.namespaced_key(key)
        page = appended(self.appender, self.tracer, request, lines, own, required)
        # A retry gets the ids of what is in the log; no other page is taken apart for them.
        return page, len(lines) if own is None else len(page.lines)


def appended(
    appender: Appender,
    tracer: Tracer,
    request: Request,
    lines: Sequence[str],
    own: str | None,
    required: Precondition | None = None,
) -> Page:
    """
    The page that *request* became: with *lines*, or that of an earlier request with the key *own*.

    Raises:
        Rejected, Unavailable: as `Appender.append_once`.
    """
    feed, trace = request.feed, tracer.choose(request.trace)
    if own is None:
        page = appender.append(feed, lines, required, trace)
    else:
        fingerprint = hashlib.sha256(request.body).hexdigest()
        page = appender.append_once(feed, lines, own, fingerprint, required, trace)
    tracer.ingested(feed, page.number, page.at_ms, page.trace)
    return page


def check_within(allowed: Allowed, lines: Sequence[str]) -> None:
    """
    Return if each of *lines* is within what is *allowed*.

    Raises:
        OutsideKey: one is not; it names the first.
    """
    if not allowed.is_bounded:
        return
    for number, line in enumerate(lines):
        if not allowed.bound.matches(parse_line(line)):
            rule = "is outside of what the key may post: its types and parents do not name it"
            raise OutsideKey(rule, field=f"operations[{number}]")


def check_key(key: str) -> str:
    """
    *key* if it can be an Idempotency-Key.

    Raises:
        InvalidKey: it cannot.
    """
    if not _PRINTABLE.fullmatch(key):
        rule = f"must be 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
        raise InvalidKey(rule, field="Idempotency-Key", value=key)
    return key
