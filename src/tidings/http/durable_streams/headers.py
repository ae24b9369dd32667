"""Parse and build the headers of Durable Streams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from tidings.core.errors import OutsideKey, TidingsError, whole_in
from tidings.core.model.feeds import check_known
from tidings.core.model.operations import Operation
from tidings.http.answers import refusal
from tidings.http.request import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed, Guard, Need
    from tidings.core.durable_streams.stream import Stream
    from tidings.http.request import Request

CONTENT_TYPE, ANY_TYPE = "content-type", "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+[ \t]*(?:;[ -~]*)?", re.ASCII)
_CHARS_MAX = 256  # limit of header values stored per stream: each is far shorter in use
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
# Headers that a page of another origin may send in addition to `answers.CORS_HEADERS`, and read.
ACCEPTED = ("if-none-match", "stream-closed", "stream-seq", *_PRODUCER)
TOLD = (
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
# Sent with every response. The producer chooses the type of the content, which must not be able to
# act as a page of this server.
ALWAYS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; sandbox",
    "access-control-expose-headers": ", ".join((*EXPOSED, *TOLD)),
}


@dataclass(frozen=True, slots=True)
class Visit:
    """An authorized request for the stream *name*, with the permissions in *allowed*."""

    feed: str
    name: str
    allowed: Allowed


def admitted(request: Request, need: Need, guard: Guard, feeds: frozenset[str]) -> Visit:
    """
    Return the visit of *request* if its credential meets *need*.

    Raises:
        Rejected: the feed does not exist, or the credential does not meet *need*.
    """
    feed, name = check_known(request.feed, feeds), request.parameters["name"]
    allowed = need.admit(guard, feed, request.credential)
    if not allowed.bound.matches(Operation("update", messages.TYPE, name, ())):
        raise OutsideKey(f"is not bounded to what has the type {messages.TYPE} and no parents")
    return Visit(feed, name, allowed)


def appending_of(request: Request, allowed: Allowed) -> Appending:
    """
    Return the append that *request* makes; its producer id belongs to the credential.

    Raises:
        InvalidStream, NotOffered: a header breaks its rule.
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
        rule = "must come with Producer-Epoch and Producer-Seq, or none of the three"
        raise InvalidStream(rule, field="Producer-Id", value=id_)
    if not _ID.fullmatch(id_):
        rule = f"must be 1 to {_CHARS_MAX} printable ASCII characters"
        raise InvalidStream(rule, field="Producer-Id", value=id_)
    own = allowed.namespaced_key(id_)
    return Producer(own, _number(epoch, "Producer-Epoch"), _number(seq, "Producer-Seq"))


def _number(text: str, field: str) -> int:
    return whole_in(text, field, 0, NUMBER_MAX, InvalidStream)


def standing(stream: Stream) -> dict[str, str]:
    """Return the headers with the end of *stream*, and whether it is closed."""
    closed = {"stream-closed": "true"} if stream.closed else {}
    return {"stream-next-offset": messages.encode_offset(stream.tail), **closed}


def refused(error: TidingsError) -> Answer:
    """
    Return *error* as a response.

    Raises:
        TidingsError: *error* is an internal error.
    """
    answer = refusal(error)
    said: dict[str, str] = {}
    if isinstance(error, StreamClosed):
        said = standing(error.stream)
    elif isinstance(error, StaleEpoch):
        said = {"producer-epoch": str(error.epoch)}
    elif isinstance(error, SequenceGap):
        said = {
            "producer-expected-seq": str(error.expected),
            "producer-received-seq": str(error.received),
        }
    return Answer(answer.status, {**ALWAYS, **answer.headers, **said}, answer.body)
