"""Serve Durable Streams 1.0 at `/feeds/{feed}/v1/stream/{name}` (PROTOCOL 21).

A read is plain, a long poll, or an event stream. Only this process writes to the streams, so a
writer can notify the waiting readers directly.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.core import limits, tracing
from tidings.core.auth.guard import INGEST
from tidings.core.auth.origins import EXPOSED
from tidings.core.durable_streams import messages
from tidings.core.durable_streams.stream import (
    NUMBER_MAX,
    Appending,
    InvalidStream,
    NotOffered,
    Producer,
    SequenceGap,
    StaleEpoch,
    StreamClosed,
)
from tidings.core.errors import OutsideKey, Rejected, TidingsError, parse_field
from tidings.core.model.operations import Operation
from tidings.http.answers import headers_for, refusal, with_headers
from tidings.http.asgi import (
    disable_buffering,
    in_thread,
    send_body,
    send_head,
    wait_for_disconnect,
)
from tidings.http.request import Answer, base_url
from tidings.http.streams.sse import CHECK_S, CUT_S, EVENT_STREAM, LAST_MS

if TYPE_CHECKING:
    from asyncio import Event, Future
    from collections.abc import AsyncIterator, Iterator, Mapping

    from tidings.core.auth.access import ReaderAccess, ReaderGate
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.durable_streams.service import StreamPart, StreamReader, StreamWriter
    from tidings.core.durable_streams.stream import Stream
    from tidings.http.asgi import CutAfter, Receive, Send
    from tidings.http.request import Request

log = logging.getLogger(__name__)
CONTENT_TYPE, ANY_TYPE = "content-type", "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+[ \t]*(?:;[ -~]*)?", re.ASCII)
_CHARS_MAX = 256  # maximum length of a stored header value; real values are far shorter
_SEQ = re.compile(f"[!-~]{{1,{_CHARS_MAX}}}")
_ID = re.compile(f"[ -~]{{1,{_CHARS_MAX}}}")
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")
_ENDS = "messages stay as long as the log keeps them, and a stream until it is deleted"
_FORKS = "each message is an operation of the feed, once, on the object of its stream"
_NOT_OFFERED = {
    "stream-ttl": _ENDS,
    "stream-expires-at": _ENDS,
    "stream-forked-from": _FORKS,
    "stream-fork-offset": _FORKS,
    "stream-fork-sub-offset": _FORKS,
}
# Web pages of other origins may send the headers `ACCEPTED`, in addition to `answers.CORS_HEADERS`,
# and read the headers `EXPOSED_HEADERS`.
ACCEPTED = ("if-none-match", "stream-closed", "stream-seq", *_PRODUCER)
EXPOSED_HEADERS = (
    "etag",
    "location",
    "stream-closed",
    "stream-cursor",
    "stream-next-offset",
    "stream-sse-data-encoding",
    "stream-up-to-date",
    "producer-epoch",
    "producer-expected-seq",
    "producer-received-seq",
    "producer-seq",
)
# These headers are sent with every response. The producer chooses the type of the content, so the
# headers prevent the content from acting as a page of this server.
ALWAYS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; sandbox",
    "access-control-expose-headers": ", ".join((*EXPOSED, *EXPOSED_HEADERS)),
}
LONG_POLL, EVENTS = "long-poll", "sse"
_UNAUTHORIZED = 401
# The values of `cache-control` for content that never changes, and for the end of an open stream,
# which a cache must revalidate every time.
_KEPT = "private, max-age=60, stale-while-revalidate=300"
_REVALIDATED = "private, no-cache"
_Content = tuple[int, dict[str, str], bytes]


def _check_object(request: Request, allowed: Allowed) -> None:
    """Check that *allowed* includes the object of the stream of *request*."""
    if not allowed.bound.matches(
        Operation("update", messages.TYPE, request.parameters["name"], ())
    ):
        raise OutsideKey(f"does not allow objects of the type {messages.TYPE} without parents")


def appending_of(request: Request, allowed: Allowed) -> Appending:
    """Return the append in *request*, with a producer id that no other credential can use.

    Raises:
        InvalidStream: a header is invalid.
        NotOffered: a header requests a feature that is not offered.
    """
    headers = request.headers
    for name, reason in _NOT_OFFERED.items():
        if name in headers:
            raise NotOffered(f"is not offered: {reason}", field=name, value=headers[name])
    kind, seq = headers.get(CONTENT_TYPE, ""), headers.get("stream-seq")
    if kind and (len(kind) > _CHARS_MAX or not _MEDIA_TYPE.fullmatch(kind)):
        rule = f"must be a media type of at most {_CHARS_MAX} characters"
        raise InvalidStream(rule, field="Content-Type", value=kind)
    if seq is not None and not _SEQ.fullmatch(seq):
        rule = f"must be 1 to {_CHARS_MAX} printable ASCII characters without blanks"
        raise InvalidStream(rule, field="Stream-Seq", value=seq)
    closes = headers.get("stream-closed", "").lower() == "true"
    return Appending(request.content(), kind, closes, seq or "", _producer_of(headers, allowed))


def _producer_of(headers: Mapping[str, str], allowed: Allowed) -> Producer | None:
    id_, epoch, seq = (headers.get(each) for each in _PRODUCER)
    if id_ is None and epoch is None and seq is None:
        return None
    if id_ is None or epoch is None or seq is None:
        rule = "must come with Producer-Epoch and Producer-Seq; send all three or none"
        raise InvalidStream(rule, field="Producer-Id", value=id_)
    if not _ID.fullmatch(id_):
        rule = f"must be 1 to {_CHARS_MAX} printable ASCII characters"
        raise InvalidStream(rule, field="Producer-Id", value=id_)
    own = allowed.namespaced_key(id_)
    return Producer(own, _number(epoch, "Producer-Epoch"), _number(seq, "Producer-Seq"))


def _number(text: str, field: str) -> int:
    return parse_field(text, field, 0, NUMBER_MAX, InvalidStream)


def stream_headers(stream: Stream) -> dict[str, str]:
    """Return the headers with the end of *stream*, which also say if the stream is closed."""
    closed = {"stream-closed": "true"} if stream.closed else {}
    return {"stream-next-offset": messages.encode_offset(stream.tail), **closed}


def refuse(error: TidingsError) -> Answer:
    """Return *error* as a response.

    Raises:
        TidingsError: *error* is an internal error.
    """
    answer = refusal(error)
    said: dict[str, str] = {}
    if isinstance(error, StreamClosed):
        said = stream_headers(error.stream)
    elif isinstance(error, StaleEpoch):
        said = {"producer-epoch": str(error.epoch)}
    elif isinstance(error, SequenceGap):
        said = {
            "producer-expected-seq": str(error.expected),
            "producer-received-seq": str(error.received),
        }
    return Answer(answer.status, {**ALWAYS, **answer.headers, **said}, answer.body)


@dataclass(frozen=True, slots=True)
class StreamWrites:
    """The endpoint for writes to streams; *prefix* is the path of the deployment's addresses."""

    writer: StreamWriter
    guard: Guard
    prefix: str = ""

    def __call__(self, request: Request) -> Answer:
        try:
            status, headers = self._write(request)
        except TidingsError as error:
            return refuse(error)
        return Answer(status, {**ALWAYS, **headers})

    def _write(self, request: Request) -> tuple[int, dict[str, str]]:
        feed, name = self.guard.feed_names.key(request.feed), request.parameters["name"]
        allowed = INGEST.admit(self.guard, feed, request.credential)
        _check_object(request, allowed)
        trace = tracing.parse_trace_headers(request.headers)
        if request.method == "DELETE":
            self.writer.remove(feed, name, trace)
            return 204, {}
        appending = appending_of(request, allowed)
        if request.method == "PUT":
            return self._create(request, feed, appending, trace)
        stream, is_new = self.writer.append(feed, name, appending, trace)
        # For a producer, 200 means that this request has appended a message, and 204 that the
        # message is a duplicate or missing.
        status = 200 if is_new and appending.producer and appending.body else 204
        return status, {**stream_headers(stream), **_producer(stream, appending)}

    def _create(
        self, request: Request, feed: str, appending: Appending, trace: str | None
    ) -> tuple[int, dict[str, str]]:
        appending = replace(appending, content_type=appending.content_type or ANY_TYPE)
        stream, is_new = self.writer.create(feed, request.parameters["name"], appending, trace)
        headers = {CONTENT_TYPE: stream.content_type, **stream_headers(stream)}
        if not is_new:
            return 200, headers
        url = base_url(request.headers, self.prefix) + request.path
        return 201, {**headers, "location": url}


def _producer(stream: Stream, appending: Appending) -> dict[str, str]:
    """Return headers with the epoch and the sequence number last accepted from the producer."""
    producer = appending.producer and stream.producer(appending.producer.id)
    if not producer:
        return {}
    return {"producer-epoch": str(producer.epoch), "producer-seq": str(producer.seq)}


class Waiting:
    """The readers that wait for changes of a stream, in the event loop."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[str, str], set[Event]] = defaultdict(set)

    def notify(self, feed: str, name: str) -> None:
        """Notify the readers that the stream has changed."""
        for changed in self._waiting.get((feed, name), ()):
            changed.set()

    @contextmanager
    def subscribe(self, feed: str, name: str) -> Iterator[Event]:
        """Yield an event that is set on each change of the stream; the reader clears it."""
        event = asyncio.Event()
        waiting = self._waiting[feed, name]
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop((feed, name), None)


@dataclass(slots=True)
class _Reader:
    """One read request, and the event *changed* that reports changes of the stream.

    *gone* is done when the client has disconnected. For *cut_after* see `asgi.CUT_AFTER`.
    """

    request: Request
    access: ReaderAccess
    changed: Event
    gone: Future[None]
    cut_after: CutAfter

    @property
    def offset(self) -> str | None:
        return self.request.query.get("offset")

    @property
    def check_s(self) -> float:
        """Return the time between two checks of the credential, in a thread."""
        return CHECK_S if self.access.admission.may_end else limits.EXISTS_S


class StreamReads:
    """The app for all reads of streams.

    *origins* are the origins of web pages that may read.
    """

    def __init__(self, reader: StreamReader, gate: ReaderGate, origins: tuple[str, ...]) -> None:
        self.waiting = Waiting()
        self._reader, self._gate, self._origins = reader, gate, origins

    async def __call__(
        self, request: Request, receive: Receive, send: Send, cut_after: CutAfter
    ) -> None:
        send = disable_buffering(send)
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            content = await self._respond(request, gone, send, cut_after)
        except TidingsError as error:
            answer = refuse(error)
            content = answer.status, {**answer.headers}, answer.body.encode()
        finally:
            gone.cancel()
        if content is not None:
            await self._send(request, content, send)

    async def _respond(
        self, request: Request, gone: Future[None], send: Send, cut_after: CutAfter
    ) -> _Content | None:
        """Return the response, or None if it has been sent already."""
        access, name = await in_thread(self._admit, request), request.parameters["name"]
        if request.method == "HEAD":
            stream = await in_thread(self._reader.stream, access.feed, name)
            return 200, {CONTENT_TYPE: stream.content_type, **stream_headers(stream)}, b""
        live, offset = request.query.get("live"), request.query.get("offset")
        _check_live(live, offset)
        with self.waiting.subscribe(access.feed, name) as changed:
            reader = _Reader(request, access, changed, gone, cut_after)
            if live == EVENTS:
                await self._send_events(reader, send)
                return None
            if live == LONG_POLL:
                return await self._long_poll(reader)
            part = await self._read(reader, offset)
            return _caught_up(part, offset, request.headers.get("if-none-match", ""))

    async def _long_poll(self, reader: _Reader) -> _Content:
        until_s = _now_s() + limits.STREAM_WAIT_S
        part = await self._wait_for_part(reader, reader.offset, until_s)
        headers = _where(part)
        if not part.is_last:
            headers["stream-cursor"] = self._cursor(reader)
        if not part.data:
            return 204, headers, b""
        return 200, {**headers, **_about(part)}, _body(part)

    def _cursor(self, reader: _Reader) -> str:
        now_ms = self._gate.quota.runtime.clock()
        return str(messages.live_cursor(reader.request.query.get("cursor", ""), now_ms))

    # Event streams.

    async def _send_events(self, reader: _Reader, send: Send) -> None:
        """Send the stream until its time limit; soon after that, disconnect a stalled client."""
        await in_thread(reader.access.take_slot)
        cutting = asyncio.ensure_future(self._cut_when_ended(reader))
        try:
            part = await self._read(reader, reader.offset)
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.STREAM_LIVE_S + LAST_MS / 1000):
                    await self._send_from(reader, part, send)
        finally:
            cutting.cancel()
            await in_thread(reader.access.close)

    async def _cut_when_ended(self, reader: _Reader) -> None:
        """Disconnect the client when its credential has ended, even if it does not read."""
        while True:
            await asyncio.sleep(reader.check_s)
            try:
                await in_thread(reader.access.check)
            except Rejected:
                reader.cut_after(CUT_S)
                return
            except TidingsError as error:
                log.warning("the credential of a reader could not be checked: %s", error)

    async def _send_from(self, reader: _Reader, part: StreamPart, send: Send) -> None:
        kind = part.stream.media_type
        headers = {CONTENT_TYPE: EVENT_STREAM}
        if not messages.is_textual(kind):
            headers["stream-sse-data-encoding"] = "base64"
        always = headers_for(reader.request.origin, self._origins)
        await send_head(send, 200, {**always, **ALWAYS, **headers})
        try:
            async for each in self._parts(reader, part):
                chunk = ""
                if each.data:  # encoding a large part takes long
                    chunk = await in_thread(messages.data_event, kind, each.data)
                await send_body(send, chunk + self._control(reader, each), more=True)
        except TidingsError as error:  # the client sends another request, which receives it
            if isinstance(error, Rejected) and error.status == _UNAUTHORIZED:
                reader.cut_after(CUT_S)  # buffers may still hold megabytes for the client
        if not reader.gone.done():
            await send_body(send, "", more=False)

    async def _parts(self, reader: _Reader, part: StreamPart) -> AsyncIterator[StreamPart]:
        """Yield *part* and each following part as it arrives; an empty part after a timeout."""
        end_s = _now_s() + limits.STREAM_LIVE_S
        yield part
        while not part.is_last and not reader.gone.done() and _now_s() < end_s:
            until_s = min(end_s, _now_s() + limits.STREAM_SAID_S)
            part = await self._wait_for_part(reader, messages.encode_offset(part.end), until_s)
            yield part

    def _control(self, reader: _Reader, part: StreamPart) -> str:
        said: dict[str, object] = {"streamNextOffset": messages.encode_offset(part.end)}
        if not part.is_last:
            said["streamCursor"] = self._cursor(reader)
        if part.at_tail:
            said["upToDate"] = True
        if part.is_last:
            said["streamClosed"] = True
        return messages.event("control", json.dumps(said, separators=(",", ":")))

    # Reading and waiting.

    async def _wait_for_part(
        self, reader: _Reader, offset: str | None, until_s: float
    ) -> StreamPart:
        """Return the part after *offset*, which is empty if no message arrives before *until_s*."""
        while True:
            reader.changed.clear()
            part = await self._read(reader, offset)
            left_s = until_s - _now_s()
            if part.data or part.is_last or reader.gone.done() or left_s <= 0:
                return part
            offset = messages.encode_offset(part.end)
            left_s = min(left_s, reader.check_s)
            changed: Future[Any] = asyncio.ensure_future(reader.changed.wait())
            awaited = {changed, reader.gone}
            await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    async def _read(self, reader: _Reader, offset: str | None) -> StreamPart:
        """Wait while the key exceeds its rate, then read the part after *offset*."""
        charge = reader.access.charge
        while charge.due and (wait_ms := await in_thread(charge.wait_ms)):
            await asyncio.sleep(wait_ms / 1000)
        return await in_thread(partial(self._read_now, reader, offset))

    def _read_now(self, reader: _Reader, offset: str | None) -> StreamPart:
        access = reader.access
        self._gate.guard.feed_names.check(access.feed)  # no stream of a deleted feed exists
        part = self._reader.read(access.feed, reader.request.parameters["name"], offset)
        access.charge.add(part.size)
        access.check()
        return part

    def _admit(self, request: Request) -> ReaderAccess:
        """Return the access of the reader that sent *request*.

        Raises:
            Rejected: the feed does not exist, or the credential does not allow reading the stream.
        """
        access = self._gate.admit(self._gate.guard.feed_names.key(request.feed), request.credential)
        _check_object(request, access.allowed)
        return access

    async def _send(self, request: Request, content: _Content, send: Send) -> None:
        status, headers, body = content
        if request.method == "HEAD":
            body = b""
        elif status not in (204, 304):
            headers["content-length"] = str(len(body))
        whole = with_headers(Answer(status, {**ALWAYS, **headers}), request.headers, self._origins)
        await send_head(send, status, whole.headers)
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _check_live(live: str | None, offset: str | None) -> None:
    if live not in (None, LONG_POLL, EVENTS):
        raise InvalidStream(f"must be {LONG_POLL} or {EVENTS}", field="live", value=live)
    if live is not None and offset is None:
        raise InvalidStream("is required if live is given", field="offset")


def _caught_up(part: StreamPart, offset: str | None, known: str) -> _Content:
    """Return the response of a plain read; *known* are the entity tags that the reader has."""
    headers = _where(part)
    if offset == messages.NOW:
        about = _about(part)
        return 200, {**headers, CONTENT_TYPE: about[CONTENT_TYPE]}, _body(part)
    final = part.is_last or not part.at_tail
    headers |= {
        **_about(part),
        "cache-control": _KEPT if final else _REVALIDATED,
        "vary": "Authorization, Origin",
    }
    if part.etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        del headers[CONTENT_TYPE]
        return 304, headers, b""
    return 200, headers, _body(part)


def _where(part: StreamPart) -> dict[str, str]:
    headers = {"stream-next-offset": messages.encode_offset(part.end)}
    if part.at_tail:
        headers["stream-up-to-date"] = "true"
    if part.is_last:
        headers["stream-closed"] = "true"
    return headers


def _about(part: StreamPart) -> dict[str, str]:
    return {CONTENT_TYPE: part.stream.content_type, "etag": part.etag}


def _body(part: StreamPart) -> bytes:
    return messages.body_of(part.stream.media_type, part.data)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
