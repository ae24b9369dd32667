"""Accept ordinary posts from the bytes of a connection, several in one commit.

Most producers send the same head again and again, with another body. So the first post with a head
takes the way of every request: parser, app, endpoint. If it is answered with 204, its head is
learned, without the fields in `_VOLATILE`, which differ from post to post. A later post with a
known head skips this way. Only facts that follow from the bytes of a head are learned. The
existence of the feed and the rights of the credential are checked again at least once a second,
and after each change of a record, such as a feed, a profile or a key.

A batch is closed when its job begins. The job appends its posts in order of arrival, and the commit
writes them together. A post that cannot be accepted takes the ordinary way, which answers with the
error. If the commit fails, nothing of the batch is written, and all its posts take that way.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidings.core.auth.guard import INGEST, Role
from tidings.core.errors import Rejected, TidingsError
from tidings.core.ingest.ingest import check_key, fingerprint_of
from tidings.core.model.pages import encode
from tidings.core.newest import Newest
from tidings.core.tracing import HEADER, XRAY_HEADER, parse_trace_headers
from tidings.http.asgi import encode_headers
from tidings.server.sqlite.log import NewPage
from tidings.server.writer import JOBS_MAX, JOBS_S_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from tidings.core.auth.guard import Allowed, Credential
    from tidings.core.ingest.ingest import Ingester
    from tidings.http.request import Answer, Request
    from tidings.server.sqlite.log import SqliteLog
    from tidings.server.writer import Writer

# The largest body, decompressed, that is handled in the event loop, which takes some 3 ms.
LOOP_BYTES_MAX = 16 * 1024
HEAD_BYTES_MAX = 4 * 1024  # a head with a token has about 1 KB
ADMITTED_S = 1.0  # an access decision is used for this time, see the start of the module
HEADS_MAX = 2_000  # learned heads, at most 8 MB; a fleet of producers has a few of them
# The values that may differ between posts with the same learned head. Forwarding fields do not
# change the answer to a post.
_VOLATILE = re.compile(
    rb"(?<=\r\n)(content-length|idempotency-key|traceparent|tracestate|x-amzn-trace-id"
    rb"|x-forwarded-(?:for|port|proto|host)|forwarded|x-real-ip|x-request-id)"
    rb":[ \t]*([\x20-\x7e]*?)[ \t]*\r\n",
    re.IGNORECASE,
)
_DIGITS = re.compile(rb"[0-9]{1,5}")
# A head with one of these fields is not learned: the field changes the framing, the body or the
# answer.
_UNUSUAL = frozenset(
    ("connection", "content-encoding", "expect", "prefer", "transfer-encoding", "upgrade")
)
_NO_CONNECTION_CHANGE = "keep-alive"


class Plan(NamedTuple):
    """The facts about the posts with a head; *route* is the template of their path.

    *status* and *headers* are those of the answer, which has no body.
    """

    route: str
    feed: str
    credential: Credential | None
    content_type: str
    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class Admitted(NamedTuple):
    """An access decision for the posts with a plan, which ends at *until_s* and at *until_ms*.

    *until_s* is a time of `monotonic`. If *allowed* is None, the posts must take the ordinary way.
    """

    until_s: float
    until_ms: float = math.inf
    feed: str = ""
    allowed: Allowed | None = None


class Found(NamedTuple):
    """A post with a known head. Its body begins at *start* of the bytes, and ends at *end*.

    *volatile* are the fields of its head that the plan does not include.
    """

    plan: Plan
    start: int
    end: int
    volatile: Sequence[tuple[bytes, bytes]]


def plan_for(route: str, request: Request, answer: Answer, *, count: int) -> Plan | None:
    """Return the plan for later posts with the head of *request*; None if none can be made.

    *count* is the number of header fields, including repeated ones.
    """
    headers = request.headers
    unusual = _UNUSUAL & headers.keys()
    if unusual == {"connection"} and headers["connection"].lower() == _NO_CONNECTION_CHANGE:
        unusual = frozenset()
    if answer.status != 204 or unusual or len(headers) != count:
        return None
    credential = request.credential
    if credential is not None:
        # The ordinary way has counted the post against the rate of the key. A post on this way is
        # counted by nothing, so keys with a rate do not take it.
        credential = replace(credential, is_charged=True, size=0)
    fields = encode_headers(tuple(answer.headers.items()))
    return Plan(
        route, request.feed, credential, headers.get("content-type", ""), answer.status, fields
    )


class Sender(Protocol):
    """The connection of a post."""

    def on_accepted(self, post: Post) -> None:
        """Send the answer of its plan, because the post is on disk."""

    def on_undecided(self, post: Post) -> None:
        """Handle the post in the ordinary way, because nothing of it was written."""


@dataclass(slots=True, eq=False)
class Post:
    """A post in a batch, which arrived at *began_s* as the bytes *data*.

    Its connection sets *disconnected*, and sets *keep_alive* to False if the answer is its last.
    """

    sender: Sender
    found: Found
    data: bytes
    began_s: float
    is_accepted: bool = False
    keep_alive: bool = True
    disconnected: bool = False


class Posts:
    """The learned heads of a server, and the batch that the next commit writes.

    Posts are appended to *log* as *ingester* appends them, in jobs of *writer*.
    """

    def __init__(self, ingester: Ingester, log: SqliteLog, writer: Writer) -> None:
        self._ingester, self._log, self._writer = ingester, log, writer
        self._new_id, self._choose = ingester.tracer.runtime.new_id, ingester.tracer.choose
        self._plans: Newest[bytes, Plan] = Newest(HEADS_MAX)
        self._admitted: Newest[Plan, Admitted] = Newest(HEADS_MAX)
        self._open: list[Post] | None = None
        self.forget = self._admitted.clear  # call it when a record has changed

    def learn(self, data: bytes, plan: Plan) -> None:
        """Use *plan* for each later post with the head at the beginning of *data*."""
        end = data.find(b"\r\n\r\n") + 2
        head = _VOLATILE.sub(b"", data[:end])
        if 2 < end <= HEAD_BYTES_MAX and head.partition(b"\r\n")[0].endswith(b" HTTP/1.1"):
            self._plans[head] = plan

    def match(self, data: bytes) -> Found | None:
        """Return the post that begins with *data*, or None if its head is not known."""
        end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 2
        head = data[:end]
        plan = self._plans.get(_VOLATILE.sub(b"", head))
        if plan is None:
            return None
        volatile = _VOLATILE.findall(head)
        values = {}
        for name, value in volatile:
            values[name.lower()] = value
        length = values.get(b"content-length", b"")
        if len(values) < len(volatile) or not _DIGITS.fullmatch(length):
            return None
        if int(length) > LOOP_BYTES_MAX:
            return None
        return Found(plan, end + 2, end + 2 + int(length), volatile)

    def add(self, post: Post) -> None:
        """Append *post* with the next commit; then call one of the methods of its sender."""
        batch = self._open
        if batch is None or len(batch) >= JOBS_MAX:
            batch = self._open = []
            done = self._writer.queue(partial(self._decide, batch))
            done.add_done_callback(partial(self._settle, batch))
        batch.append(post)

    def _decide(self, batch: list[Post]) -> None:
        """Append the posts of *batch*, in a transaction. A repeated call appends them again."""
        if batch is self._open:
            self._open = None
        ingester, now_s = self._ingester, time.monotonic()
        now_ms, operations = ingester.tracer.runtime.clock(), 0
        new: dict[str, tuple[list[Post], list[NewPage]]] = {}  # by feed
        keys: set[tuple[str, str]] = set()
        for at, post in enumerate(batch):
            if at and time.monotonic() >= now_s + JOBS_S_MAX:
                self._put_back(batch, at)
                break
            plan, post.is_accepted = post.found.plan, False
            known = self._admitted.get(plan)
            if known is None or known.until_s < now_s or known.until_ms <= now_ms:
                known = self._admitted[plan] = self._admit(plan, now_s)
            _, _, feed, allowed = known
            if allowed is None:
                continue
            body, own, fingerprint, trace = post.data[post.found.start :], "", "", None
            try:
                lines = ingester.lines(feed, body, plan.content_type, now_ms)
                if len(post.found.volatile) > 1:
                    own, trace = _of_volatile(post.found.volatile, allowed)
                if own:
                    claim = ingester.appender.claims.find(feed, own, now_ms=now_ms)
                    if claim or (feed, own) in keys:
                        continue  # the ordinary way finds the page of the earlier request
                    keys.add((feed, own))
                    fingerprint = fingerprint_of(body)
                encoded, traced = encode(lines), self._choose(trace)
            except Rejected:
                continue
            posts, pages = new.setdefault(feed, ([], []))
            posts.append(post)
            pages.append(NewPage(lines, encoded, self._new_id(), traced, own, fingerprint))
        for feed, (posts, pages) in new.items():
            operations += self._append(feed, posts, pages, now_ms)
        if operations:
            ingester.tracer.runtime.count("OperationsIngested", operations)

    def _put_back(self, batch: list[Post], first: int) -> None:
        """Move the posts from number *first* on from *batch* to the next batch."""
        rest = batch[first:]
        del batch[first:]
        for post in rest:
            self.add(post)

    def _append(self, feed: str, posts: list[Post], new: list[NewPage], now_ms: int) -> int:
        """Append *new*, the pages of *posts*, if the log accepts pages.

        Return the number of operations.
        """
        tracer, expires_ms = self._ingester.tracer, now_ms + self._ingester.tracer.runtime.page_ms
        try:
            pages = self._log.extend(feed, new, now_ms, expires_ms)
        except Rejected:
            return 0
        operations = 0
        for post, page in zip(posts, pages, strict=True):
            post.is_accepted = True
            operations += len(page.lines)
            if page.trace:
                tracer.report_ingested(feed, page.number, now_ms, page.trace)
        return operations

    def _admit(self, plan: Plan, now_s: float) -> Admitted:
        """Decide on the access of *plan*; a refusal is valid for the batch that began at *now_s*.

        Admit only a credential that is simple to check.
        """
        guard, refused = self._ingester.guard, Admitted(now_s)
        try:
            feed = guard.feed_names.key(plan.feed)
            if guard.may_block(feed, Role.INGEST, plan.credential):
                return refused
            allowed = INGEST.admit(guard, feed, plan.credential)
            self._ingester.appender.check_writable(feed)
        except TidingsError:
            return refused
        admission = allowed.admission
        if allowed.is_bounded or admission.rate:
            return refused
        return Admitted(now_s + ADMITTED_S, admission.until_ms or math.inf, feed, allowed)

    def _settle(self, batch: list[Post], done: asyncio.Future[None]) -> None:
        if batch is self._open:  # the transaction could not begin
            self._open = None
        is_written = not done.cancelled() and done.exception() is None
        for post in batch:
            if is_written and post.is_accepted:
                post.sender.on_accepted(post)
            else:
                post.sender.on_undecided(post)


def _of_volatile(
    volatile: Sequence[tuple[bytes, bytes]], allowed: Allowed
) -> tuple[str, str | None]:
    """Return the Idempotency-Key of the producer, and the result of `parse_trace_headers`.

    The key is as `Allowed.namespaced_key` returns it, and "" if the request has none.

    Raises:
        InvalidKey: the key is not valid.
    """
    headers = {}
    for name, value in volatile:
        headers[name.decode().lower()] = value.decode()
    key = headers.get("idempotency-key")
    own = "" if key is None else allowed.namespaced_key(check_key(key))
    traced = HEADER in headers or XRAY_HEADER in headers
    return own, parse_trace_headers(headers) if traced else None
