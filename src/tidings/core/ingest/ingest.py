"""Append a producer's request as one page, or reject it with an error that gives the reason."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from tidings.core.tracing import Tracer, disabled_tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.counters import Counters
    from tidings.core.effects import Runtime
    from tidings.core.ingest.write_bounds import Preconditions
    from tidings.core.log.append import Appender, Precondition
    from tidings.core.model.pages import Page

    # Parses a request: feed, body, content type, time in ms. Returns lines of the log.
    BodyParser = Callable[[str, bytes, str, int], list[str]]

_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Request:
    """
    A producer's request.

    *key* is the Idempotency-Key and *credential* the producer's credential, or None if missing.
    *trace* is the result of `tracing.parse_trace_headers`. *late* reads the body, because the
    producer is authorized before the body is read. Without *ids* the ids of the operations are not
    computed.
    """

    feed: str
    body: bytes
    content_type: str
    key: str | None = None
    credential: Credential | None = None
    trace: str | None = None
    late: Callable[[], bytes] | None = None
    ids: bool = True

    def content(self) -> bytes:
        """Return the body; read it if it was not read yet."""
        return self.body if self.late is None else self.late()


def _operations(feed: str, body: bytes, content_type: str, now_ms: int) -> list[str]:
    """Implement `BodyParser` in the same way for every feed."""
    return lines_from(body, content_type, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingester:
    """
    A service that appends the operations of producers' requests.

    *required* returns the precondition for a restricted producer; *lines* parses a body.
    """

    appender: Appender
    runtime: Runtime
    feeds: frozenset[str]
    counters: Counters
    guard: Guard
    required: Preconditions
    lines: BodyParser = _operations
    tracer: Tracer = field(default_factory=disabled_tracer)

    def accept(self, request: Request) -> list[str]:
        """
        Append the operations of *request*; return their event ids, in order, if they are requested.

        Raises:
            Rejected: one of its subclasses; nothing was written.
            Unavailable: it is unknown whether the page was written; the producer should retry.
        """
        try:
            page, count = self._append(request)
        except Rejected as error:
            self.runtime.count("RequestsRejected", 1)
            if isinstance(error, InvalidOperation | InvalidItem | TooLarge):
                self._count_refused(request.feed)
            raise
        self.runtime.count("OperationsIngested", count)
        if not request.ids:
            return []
        prefix = page.id_prefix
        return [f"{prefix}{slot:06x}" for slot in range(count)]

    def _count_refused(self, feed: str) -> None:
        """Count a request with refused operations, unless the store of the counters fails."""
        with suppress(Unavailable):
            self.counters.refuse(feed)

    def _append(self, request: Request) -> tuple[Page, int]:
        """Append the operations; return the page and their number."""
        feed = feeds.check_known(request.feed, self.feeds)
        allowed = INGEST.admit(self.guard, feed, request.credential)
        self.appender.check_writable(feed)  # before the request is validated
        key = None if request.key is None else check_key(request.key)
        reader_for(request.content_type)  # before waiting for the body
        body = request.content()
        lines = self.lines(feed, body, request.content_type, self.runtime.clock())
        check_within(allowed, lines)
        required = self.required(feed, allowed, lines)
        own = key and allowed.namespaced_key(key)
        page = append_lines(self.appender, self.tracer, request, body, lines, own, required)
        # With a key, return the ids of the page in the log, which may be an earlier request's.
        # Without a key, the page need not be unpacked.
        return page, len(lines) if own is None else len(page.lines)


def append_lines(
    appender: Appender,
    tracer: Tracer,
    request: Request,
    body: bytes,
    lines: Sequence[str],
    own: str | None,
    required: Precondition | None = None,
) -> Page:
    """
    Return the page with *lines*, or the page of an earlier request with the key *own* and *body*.

    Raises:
        Rejected, Unavailable: see `Appender.append_once`.
    """
    feed, trace = request.feed, tracer.choose(request.trace)
    if own is None:
        page = appender.append(feed, lines, required, trace)
    else:
        fingerprint = hashlib.sha256(body).hexdigest()
        page = appender.append_once(feed, lines, own, fingerprint, required, trace)
    tracer.ingested(feed, page.number, page.at_ms, page.trace)
    return page


def check_within(allowed: Allowed, lines: Sequence[str]) -> None:
    """
    Return if each of *lines* is within the bound of *allowed*.

    Raises:
        OutsideKey: a line is outside of the bound; the error names the first one.
    """
    if not allowed.is_bounded:
        return
    for number, line in enumerate(lines):
        if not allowed.bound.matches(parse_line(line)):
            rule = "must match the types and parents that the key may post"
            raise OutsideKey(rule, field=f"operations[{number}]")


def check_key(key: str) -> str:
    """
    Return *key* if it is a valid Idempotency-Key.

    Raises:
        InvalidKey: *key* is not valid.
    """
    if not _PRINTABLE.fullmatch(key):
        rule = f"must be 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
        raise InvalidKey(rule, field="Idempotency-Key", value=key)
    return key
