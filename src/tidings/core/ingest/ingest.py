"""Append a producer's request as one page, or reject it with an error that gives the reason."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
from tidings.core.model.json_body import lines_from, reader_for
from tidings.core.model.operations import parse_line
from tidings.core.tracing import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.counters import Counters
    from tidings.core.ingest.write_bounds import Preconditions
    from tidings.core.log.append import Appender, Precondition
    from tidings.core.model.pages import Page

    # A function that parses the body of a request. It takes the feed, the body, the content type
    # and the time in ms, and returns the operations as lines of the log.
    BodyParser = Callable[[str, bytes, str, int], list[str]]

_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}", re.ASCII)


class PostRequest(NamedTuple):
    """A producer's request.

    *key* is the Idempotency-Key, and *credential* the producer's credential. Each is None if the
    request does not have it. *trace* is the result of `tracing.parse_trace_headers`. *late* is a
    function that reads the body after the producer was authorized; if *late* is None, the body is
    *body*. If *ids* is False, the event ids of the operations are not computed.
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
        """Return the body, after reading it if *late* is given."""
        return self.body if self.late is None else self.late()


def _operations(feed: str, body: bytes, content_type: str, now_ms: int) -> list[str]:
    """Implement `BodyParser` for a body of operations, in the same way for every feed."""
    return lines_from(body, content_type, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingester:
    """A service that appends the operations of producers' requests.

    *required* returns the precondition for a restricted producer. *lines* parses a body.
    """

    appender: Appender
    counters: Counters
    guard: Guard
    required: Preconditions
    tracer: Tracer
    lines: BodyParser = _operations

    def accept(self, request: PostRequest) -> list[str]:
        """Append the operations of *request* and return their event ids, in order.

        Return no ids if `request.ids` is False.

        Raises:
            Rejected: no operation was written; the subclass and the message say why.
            Unavailable: it is unknown whether the page was written; the producer should retry.
        """
        try:
            page, count = self._append(request)
        except Rejected as error:
            self.tracer.runtime.count("RequestsRejected", 1)
            if isinstance(error, InvalidOperation | InvalidItem | TooLarge):
                with suppress(Unavailable):
                    key = self.guard.feed_names.find(request.feed)
                    if key is not None:
                        self.counters.refuse(key)
            raise
        self.tracer.runtime.count("OperationsIngested", count)
        if not request.ids:
            return []
        prefix = page.id_prefix
        return [f"{prefix}{slot:06x}" for slot in range(count)]

    def _append(self, request: PostRequest) -> tuple[Page, int]:
        """Append the operations; return the page and the number of operations in it."""
        feed = self.guard.feed_names.key(request.feed)
        if feed != request.feed:
            request = request._replace(feed=feed)
        allowed = INGEST.admit(self.guard, feed, request.credential)
        self.appender.check_writable(feed)  # reject a chained feed before validating the request
        key = None if request.key is None else check_key(request.key)
        reader_for(request.content_type)  # reject a wrong type before waiting for the body
        body = request.content()
        lines = self.lines(feed, body, request.content_type, self.tracer.runtime.clock())
        check_within(allowed, lines)
        required = self.required(feed, allowed, lines)
        own = key and allowed.namespaced_key(key)
        page = append_lines(self.appender, self.tracer, request, body, lines, own, required)
        # With a key, an earlier request may have written the page, so count the page's operations.
        # Without a key, the page has exactly *lines*, and need not be unpacked.
        return page, len(lines) if own is None else len(page.lines)


def append_lines(
    appender: Appender,
    tracer: Tracer,
    request: PostRequest,
    body: bytes,
    lines: Sequence[str],
    own: str | None,
    required: Precondition | None = None,
) -> Page:
    """Append *lines* as a page and return the page; if it was appended before, return that page.

    *own* is the Idempotency-Key as `Allowed.namespaced_key` returns it, or None. An earlier request
    with *own* may have appended the page; its body must have been the same *body*.

    Raises:
        Rejected, Unavailable: see `Appender.append_once`.
    """
    feed, trace = request.feed, tracer.choose(request.trace)
    if own is None:
        page = appender.append(feed, lines, required, trace)
    else:
        page = appender.append_once(feed, lines, own, fingerprint_of(body), required, trace)
    tracer.report_ingested(feed, page.number, page.at_ms, page.trace)
    return page


def fingerprint_of(body: bytes) -> str:
    """Return the `Claim.fingerprint` of a request with *body*."""
    return hashlib.sha256(body).hexdigest()


def check_within(allowed: Allowed, lines: Sequence[str]) -> None:
    """Check that each of *lines* is within the bound of *allowed*.

    Raises:
        OutsideKey: a line is outside the bound; the error names the first such line.
    """
    if not allowed.is_bounded:
        return
    for number, line in enumerate(lines):
        if not allowed.bound.matches(parse_line(line)):
            rule = "must match the types and parents that the key may post"
            raise OutsideKey(rule, field=f"operations[{number}]")


def check_key(key: str) -> str:
    """Return *key* if it is a valid Idempotency-Key.

    Raises:
        InvalidKey: *key* is not valid.
    """
    if not _PRINTABLE.fullmatch(key):
        rule = f"must be 1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
        raise InvalidKey(rule, field="Idempotency-Key", value=key)
    return key
