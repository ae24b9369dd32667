"""Write each message as one entry of a queue, topic, bus or stream, in an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidings.pipelines.bodies import encoder, identity_of, object_of, until_refused, version_of
from tidings.pipelines.message import Message


@dataclass(frozen=True, slots=True)
class Entry:
    """
    The message at *index* of its batch.

    *object* identifies the object of the message. *identity* is the same for each delivery of the
    message. *place* is the id of its event, and *body* the bytes to send.
    """

    index: int
    op: str
    namespace: str
    object: str
    identity: str
    place: str
    body: bytes

    def headers(self) -> dict[str, str]:
        """
        Return the headers by which a receiver orders messages: the highest sequence is the latest.
        """
        return {
            "tidings-op": self.op,
            "tidings-object": self.object,
            "tidings-place": self.place,
            "tidings-sequence": str(version_of(self.place)),
        }


class EntryStore:
    """
    A sink that encodes messages as entries; a subclass sends them.

    A `reset` is left out. None of these stores guarantees the order among objects, so a receiver
    that emptied its store on a `reset` could lose messages that arrived before it.
    """

    def __init__(self, envelope: str, feed: str) -> None:
        self._encode = encoder(envelope, feed)
        self._consumer = ""

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Write the messages in order, and none after one that fails.

        Raises:
            Unwritten: a message cannot be encoded, or the store rejected it.
            Busy: the store did not accept it for reasons of its own.
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
        """Send all *entries*, at least one. It raises the same errors as `write`."""
        raise NotImplementedError
