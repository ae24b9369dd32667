"""Encode a message as one line of JSON, in the envelope that its receivers expect."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tidings.client.errors import Unwritten
from tidings.core.errors import InvalidFilter
from tidings.core.model import cursors, envelopes
from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.core.model.events import Event
from tidings.core.model.operations import to_canonical_json
from tidings.pipelines.files import line_of
from tidings.pipelines.messages import Message, Verdict, WrongPipeline
from tidings.pipelines.refusals import verdict

_DIGEST_CHARS = 32  # 128 bits, so that digests are unique among all messages of all feeds
SLOT_BITS = PAGE_END.bit_length()

Encode = Callable[[Message], str]
Made = TypeVar("Made")


def until_refused(
    messages: Sequence[Message], make: Callable[[int, Message], Made]
) -> tuple[list[Made], Unwritten | None]:
    """Call *make* with each index and message, until it fails.

    Return the results before the first failure, and the failure.
    """
    made: list[Made] = []
    for index, message in enumerate(messages):
        try:
            made.append(make(index, message))
        except Unwritten as refusal:
            return made, refusal
        except Exception as error:  # noqa: BLE001 a function of the user may raise anything
            return made, Unwritten(index, f"{type(error).__name__}: {error}")
    return made, None


def write_parts(
    messages: Sequence[Message],
    put: Callable[[Sequence[Message], int], None],
    empty: Callable[[], None],
) -> None:
    """Call *empty* for each reset, and *put* with the messages before, between and after them.

    *put* also receives the index of the first of its messages, of which there may be none.
    """
    start = 0
    for at, message in enumerate(messages):
        if message.is_command:
            put(messages[start:at], start)
            empty()
            start = at + 1
    put(messages[start:], start)


@contextmanager
def blame_message(messages: Sequence[Message]) -> Iterator[None]:
    """Raise `Unwritten` for the message if a batch of one message fails with an error of a message.

    Stores that do not learn which message of a batch caused an error use this function. A client
    raises `TypeError` or `ValueError` for a value that it cannot encode.

    Raises:
        Unwritten: the batch has only one message, so this message caused the error.
    """
    try:
        yield
    except Exception as error:
        is_own = isinstance(error, TypeError | ValueError) or verdict(error) is Verdict.MESSAGE
        if len(messages) > 1 or not is_own:
            raise
        raise Unwritten(0, f"{type(error).__name__}: {error}") from error


def encoder(envelope: str, feed: str) -> Encode:
    """Return a function that encodes a message in *envelope*.

    `tidings` is the format of the lines of `Ndjson`. `cloudevents` and `debezium` are the formats
    of the feed's own streams, and contain the name *feed*.

    Raises:
        WrongPipeline: the envelope is unknown.
    """
    try:
        envelope = envelopes.check_format(envelope)
    except InvalidFilter:
        known = ", ".join(envelopes.FORMATS)
        raise WrongPipeline(f"envelope must be one of {known}, not {envelope!r}") from None
    if envelope == envelopes.TIDINGS:
        return line_of
    encode = envelopes.encoder(envelope, feed, lambda: time.time_ns() // 1_000_000)

    def write(message: Message) -> str:
        if message.is_command:
            return encode(Event(message.id, "reset", ""))
        fields = {**message.data, "type": message.namespace, "id": message.key}
        return encode(Event(message.id, message.op, to_canonical_json(fields)))

    return write


def object_of(message: Message) -> str:
    """Return a string that is equal for all messages of one object, and unique to it."""
    return f"{message.namespace}/{message.key}"


def identity_of(message: Message, consumer: str) -> str:
    """Return an id of a message that is unique, and the same for each delivery to *consumer*.

    The id of the event is not sufficient, because all objects that are sent as part of one copy
    have the same event id, and because two feeds may use the same event ids.
    """
    identity_bytes = f"{consumer} {message.op} {object_of(message)}".encode(errors="surrogatepass")
    return f"{message.id}-{hashlib.sha256(identity_bytes).hexdigest()[:_DIGEST_CHARS]}"


def version_of(event_id: str) -> int:
    """Return the position of an event in the log as one number.

    For an object that was sent as part of a copy, return the end of the last page that the copy
    includes. So all later events have a higher number.
    """
    place = cursors.parse(event_id)
    assert isinstance(place, Place | Replication)
    slot = place.slot if isinstance(place, Place) else PAGE_END
    return place.page << SLOT_BITS | slot


@dataclass(frozen=True, slots=True)
class Entry:
    """The message at *index* of its batch, encoded.

    *object* identifies the object of the message (`object_of`). *identity* is the same for each
    delivery of the message (`identity_of`). *event_id* is the id of the message's event, and *body*
    has the bytes to send.
    """

    index: int
    op: str
    namespace: str
    object: str
    identity: str
    event_id: str
    body: bytes

    def headers(self) -> dict[str, str]:
        """Return the headers by which a receiver can order the messages of an object.

        The latest message has the highest `tidings-sequence`.
        """
        return {
            "tidings-op": self.op,
            "tidings-object": self.object,
            "tidings-place": self.event_id,
            "tidings-sequence": str(version_of(self.event_id)),
        }


class PatientStore:
    """The base of stores that wait within `write`, by `wait`, which a run replaces."""

    def wait(self, delay_s: float, reason: str = "") -> None:
        time.sleep(delay_s)


class EntryStore(PatientStore):
    """A sink that encodes messages as entries. A subclass sends the entries.

    A `reset` is not sent. The order of messages of different objects is not guaranteed. So messages
    after the `reset` could arrive before the `reset`. A receiver that empties its store on a
    `reset` would lose these messages.
    """

    def __init__(self, envelope: str, feed: str) -> None:
        self._encode = encoder(envelope, feed)
        self._consumer = ""

    def write(self, messages: list[Message], fence: int) -> None:
        """Write the messages, up to but not including the first one that cannot be encoded.

        Raises:
            Unwritten: a message cannot be encoded, or the store rejected it.
            Busy: the store did not accept a message, although the message may be valid.
        """
        entries, refusal = until_refused(messages, self._entry)
        if kept := [each for each in entries if each]:
            self._put(kept)
        if refusal is not None:
            raise refusal

    def _entry(self, index: int, message: Message) -> Entry | None:
        if message.is_command:
            return None
        identity = identity_of(message, self._consumer)
        name, body = object_of(message), self._encode(message).encode()
        return Entry(index, message.op, message.namespace, name, identity, message.id, body)

    def _put(self, entries: Sequence[Entry]) -> None:
        """Send *entries*, at least one. Raise the same errors as `write`."""
        raise NotImplementedError
