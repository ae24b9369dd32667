"""A message as one line of JSON, in the envelope that its receivers read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tidings.client.errors import Unwritten
from tidings.core.errors import InvalidFilter
from tidings.core.model import cursors, envelopes
from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.core.model.events import Event
from tidings.core.model.operations import encoded
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.message import Message
from tidings.pipelines.sinks.ndjson import line_of

_DIGEST_CHARS = 32  # 128 bits: no two messages of all feeds share them
_SLOT_BITS = PAGE_END.bit_length()

Encode = Callable[[Message], str]
Made = TypeVar("Made")


def until_refused(
    messages: Sequence[Message], make: Callable[[int, Message], Made]
) -> tuple[list[Made], Unwritten | None]:
    """What *make* makes of each and its index, up to the first that it fails at, and why."""
    made: list[Made] = []
    for index, message in enumerate(messages):
        try:
            made.append(make(index, message))
        except Unwritten as refusal:
            return made, refusal
        except Exception as error:  # noqa: BLE001 whatever an author's function made of it
            return made, Unwritten(index, f"{type(error).__name__}: {error}")
    return made, None


@contextmanager
def blamed(messages: Sequence[Message], *errors: type[Exception]) -> Iterator[None]:
    """
    What one of *errors* is for a store that takes a batch whole or not at all.

    Raises:
        Unwritten: it is the fault of the one message there is.
    """
    try:
        yield
    except errors as error:
        if len(messages) > 1:
            raise
        raise Unwritten(0, f"{type(error).__name__}: {error}") from error


def encoder(envelope: str, feed: str) -> Encode:
    """
    What writes a message: `tidings` as the lines of `Ndjson`, `cloudevents`, `debezium`.

    The last two are those of the feed's own streams, and name it *feed*.

    Raises:
        WrongPipeline: there is no such envelope.
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
        return encode(Event(message.id, message.op, encoded(fields)))

    return write


def object_of(message: Message) -> str:
    """What the messages of one object share, and no others."""
    return f"{message.namespace}/{message.key}"


def identity_of(message: Message, consumer: str) -> str:
    """
    The same for a message that *consumer* is told again, and for no other one.

    The objects of a copy share an id, and two feeds may have the same ones.
    """
    told = f"{consumer} {message.op} {object_of(message)}".encode(errors="surrogatepass")
    return f"{message.id}-{hashlib.sha256(told).hexdigest()[:_DIGEST_CHARS]}"


def version_of(event_id: str) -> int:
    """
    The place of an event in the log as one number; of a copied object the end of the page behind
    which the log goes on, so that what follows is newer.
    """
    place = cursors.parse(event_id)
    assert isinstance(place, Place | Replication)
    slot = place.slot if isinstance(place, Place) else PAGE_END
    return place.page << _SLOT_BITS | slot
