"""What queues, topics, buses and streams share: an entry a message, in an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidings.pipelines.bodies import encoder, identity_of, object_of, until_refused, version_of
from tidings.pipelines.message import Message


@dataclass(frozen=True, slots=True)
class Entry:
    """
    The message at *index* of its batch.

    *object* is what the messages of one object share, *identity* the same for a message that
    comes again, *place* the id of its event and *body* what is sent.
    """

    index: int
    op: str
    namespace: str
    object: str
    identity: str
    place: str
    body: bytes

    def headers(self) -> dict[str, str]:
        """What a receiver compares by: of an object the highest sequence counts."""
        return {
            "tidings-op": self.op,
            "tidings-object": self.object,
            "tidings-place": self.place,
            "tidings-sequence": str(version_of(self.place)),
        }


class EntryStore:
    """
    Writes messages as entries, and has a subclass send them.

    A `reset` is left out: none of these stores keeps the order among objects for certain, so
    receivers that emptied a store for it would lose what overtook it.
    """

    def __init__(self, envelope: str, feed: str) -> None:
        self._encode = encoder(envelope, feed)
        self._consumer = ""

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Each in its turn, and nothing behind what fails.

        Raises:
            Unwritten: a message cannot be an entry, or was refused for what it is.
            Busy: the store refused it for its own reasons.
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
        """Send all of *entries*, of which there is one at least; it raises what `write` does."""
        raise NotImplementedError
