"""The messages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidings.client.worker import Message as Delivered

COMMAND = "command"  # `reset`, before a copy: earlier objects may no longer exist


@dataclass(slots=True)
class Message:
    """
    An operation on its way to a store. Functions may change every field except `id`.

    `op` is insert, update, delete or command. `namespace` is the type of the object, and `ts` the
    timestamp of the operation. `data` is the operation as it was posted, with `type`, `id`,
    `parents`, `timestamp` and its other fields. A command has no data.
    """

    op: str
    namespace: str
    ts: str
    data: dict[str, Any]
    id: str

    @property
    def is_command(self) -> bool:
        return self.op == COMMAND

    @property
    def is_gone(self) -> bool:
        """Return True if the object was deleted or no longer matches the subscription."""
        return self.op in ("delete", "leave")

    @property
    def key(self) -> str:
        """Return the id of the object."""
        return str(self.data.get("id", ""))


def message_of(delivered: Delivered) -> Message:
    if delivered.event == "reset":
        return Message(COMMAND, "", "", {}, delivered.id)
    data = delivered.data
    namespace, ts = str(data.get("type", "")), str(data.get("timestamp", ""))
    return Message(delivered.event, namespace, ts, data, delivered.id)
