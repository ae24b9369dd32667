"""The stored document of a stream, the requests of producers, and the rules for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.auth.guard import OWNER_END
from tidings.core.errors import Rejected
from tidings.core.model.cursors import Place
from tidings.core.records import Kind, Layout, Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.records import RecordStore


@dataclass(frozen=True, slots=True)
class Extent:
    """A page of a stream. *last* is the place of its last message.

    *before* is the tail of the stream before the page was appended.
    """

    before: Place
    last: Place


class StreamStore(Protocol):
    """The documents of the streams of each feed, and the extents of each stream."""

    def stream(self, feed: str, name: str) -> Stream | None:
        """Return the stream, or None if it does not exist."""

    def write(self, feed: str, stream: Stream, extent: Extent | None = None) -> None:
        """Store *stream* unconditionally, and its new page *extent* if there is one."""

    def remove(self, feed: str, name: str) -> None:
        """Remove the stream and its extents; do nothing if it does not exist."""

    def extents(self, feed: str, name: str, after: Place, limit: int) -> Sequence[Extent]:
        """Return at most *limit* extents of the stream with messages after *after*, in order.

        Extents below the floor of the log may be left out.
        """


NUMBER_MAX = 2**53 - 1  # limit of Producer-Epoch and Producer-Seq: JavaScript's safe integers


class InvalidStream(Rejected, code="invalid_stream"):
    """A part of the request breaks its rule."""


class NotOffered(Rejected, code="not_offered"):
    """The request needs a feature of the protocol that a feed cannot have."""


class UnknownStream(Rejected, code="unknown_stream", status=404):
    """A stream with this name does not exist."""


class OffsetGone(Rejected, code="offset_gone", status=410):
    """The log no longer has the messages after the offset."""


class StreamConflict(Rejected, code="stream_conflict", status=409):
    """The request has other properties than the stream, or a `Stream-Seq` not above the last."""


class StreamClosed(Rejected, code="stream_closed", status=409):
    """Nothing can be appended to the closed *stream*."""

    def __init__(self, stream: Stream) -> None:
        super().__init__("is closed", field="stream", value=stream.name)
        self.stream = stream


class StaleEpoch(Rejected, code="stale_epoch", status=403):
    """The producer has sent requests with *epoch*, which is above the epoch of this request."""

    def __init__(self, given: int, epoch: int) -> None:
        super().__init__(f"must be {epoch} or more", field="Producer-Epoch", value=given)
        self.epoch = epoch


class SequenceGap(Rejected, code="sequence_gap", status=409):
    """A request of the producer before this request is missing."""

    def __init__(self, received: int, expected: int) -> None:
        super().__init__(f"must be {expected}", field="Producer-Seq", value=received)
        self.received, self.expected = received, expected


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer. *seq* is the number of its last accepted request in *epoch*.

    *id* is the result of `Allowed.namespaced_key` for the id that the client chose.
    """

    id: str
    epoch: int
    seq: int

    @property
    def owner(self) -> str:
        """Return the principal of the producer's credential; "" for a password."""
        return self.id.rpartition(OWNER_END)[0]


@dataclass(frozen=True, slots=True)
class Stream:
    """The stored document of a stream, without its messages.

    The stream has the messages after *begins* up to *tail*, the place of the last message. *seq* is
    the last `Stream-Seq`. *producers* are sorted by their last append, the latest last.
    """

    name: str
    content_type: str
    begins: Place
    tail: Place
    closed: bool = False
    seq: str = ""
    producers: tuple[Producer, ...] = ()

    @property
    def media_type(self) -> str:
        return media_type(self.content_type)

    def producer(self, id_: str) -> Producer | None:
        return next((each for each in self.producers if each.id == id_), None)


_PLACE = Layout(Place).nested
_STREAM = Layout(
    Stream,
    codecs={"begins": _PLACE, "tail": _PLACE, "producers": Layout(Producer).nested_tuple},
    name="name",
)


def streams_in(records: RecordStore) -> Records[Stream]:
    """Return the documents of the streams in *records*."""
    return Records(records, Kind("durable-stream"), _STREAM)


@dataclass(frozen=True, slots=True)
class Appending:
    """A request to append *body* to a stream, to close it (*closes*), or both."""

    body: bytes
    content_type: str = ""
    closes: bool = False
    seq: str = ""
    producer: Producer | None = None

    @property
    def only_closes(self) -> bool:
        return self.closes and not self.body


def media_type(content_type: str) -> str:
    """Return the media type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def require_stream(stream: Stream | None, name: str) -> Stream:
    """Return *stream*, which was looked up by *name*.

    Raises:
        UnknownStream: *stream* is None.
    """
    if stream is None:
        raise UnknownStream("no such stream of this feed", field="name", value=name)
    return stream


def check_same(stream: Stream, content_type: str, *, closed: bool) -> None:
    """Check that *stream* has the properties that a request names.

    Raises:
        StreamConflict: the properties differ.
    """
    if media_type(content_type) != stream.media_type:
        rule = f"must be {stream.content_type}, as for the existing stream"
        raise StreamConflict(rule, field="Content-Type", value=content_type)
    if closed != stream.closed:
        rule = f"must be {str(stream.closed).lower()}, as for the existing stream"
        raise StreamConflict(rule, field="Stream-Closed", value=closed)


def is_repeated(stream: Stream, appending: Appending) -> bool:
    """Return True if the request *appending* was applied to *stream* before.

    The fields of the producer are checked first. Even if the stream was closed in the meantime, a
    producer with an old epoch gets `StaleEpoch`, and a producer that repeats an accepted request
    gets a success.

    Raises:
        InvalidStream, StaleEpoch, SequenceGap, StreamClosed, StreamConflict: the request is neither
            repeated nor valid.
    """
    if appending.producer is not None and _is_repeated_number(stream, appending.producer):
        return True
    if stream.closed:
        if appending.only_closes and appending.producer is None:
            return True
        raise StreamClosed(stream)
    if appending.body:
        check_same(stream, appending.content_type, closed=False)
    if appending.seq and appending.seq <= stream.seq:
        rule = f"must be above {stream.seq}"
        raise StreamConflict(rule, field="Stream-Seq", value=appending.seq)
    return False


def _is_repeated_number(stream: Stream, given: Producer) -> bool:
    known = stream.producer(given.id)
    if known is not None and given.epoch < known.epoch:
        raise StaleEpoch(given.epoch, known.epoch)
    if known is not None and given.epoch > known.epoch and given.seq:
        rule = "must be 0, the first number of a new epoch"
        raise InvalidStream(rule, field="Producer-Seq", value=given.seq)
    is_new_epoch = known is None or given.epoch > known.epoch
    last = -1 if known is None or is_new_epoch else known.seq
    if given.seq > last + 1:
        raise SequenceGap(given.seq, last + 1)
    return given.seq <= last


def _keep_newest(producers: Sequence[Producer]) -> Sequence[Producer]:
    """Return *producers*, without one of them if there are too many.

    Find the credential with the most producers, and remove the producer of this credential that has
    not appended for the longest time. A credential thus cannot displace the producers of another
    credential that has fewer producers.
    """
    if len(producers) <= limits.STREAM_PRODUCERS_MAX:
        return producers
    counts = Counter(each.owner for each in producers)
    # If several producers have the highest count, `max` returns the first of them, which appended
    # the longest ago.
    oldest = max(producers, key=lambda each: counts[each.owner])
    return [each for each in producers if each is not oldest]


def after(stream: Stream, appending: Appending, tail: Place) -> Stream:
    """Return *stream* after *appending*, with its last message at *tail*."""
    producers: Sequence[Producer] = stream.producers
    if appending.producer is not None:
        others = [each for each in producers if each.id != appending.producer.id]
        producers = _keep_newest([*others, appending.producer])
    return replace(
        stream,
        tail=tail,
        closed=stream.closed or appending.closes,
        seq=appending.seq or stream.seq,
        producers=tuple(producers),
    )
