"""What flows through a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidings.client.consume.worker import Message as Delivered

COMMAND = "command"  # `reset`, before a copy: what was written is no longer all there is


@dataclass(slots=True)
class Message:
    """
    An operation on its way to a store. Functions may change every field but `id`.

    `op` is insert, update, delete or command; `namespace` the type of the object; `ts` the
    operation's timestamp; `data` the operation as it was posted, with `type`, `id`, `parents`,
    `timestamp` and what else there is. A command has no data.
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
        """Whether the object is no more, or no longer what is asked for."""
        return self.op in ("delete", "leave")

    @property
    def key(self) -> str:
        """The id of the object."""
        return str(self.data.get("id", ""))


def message_of(delivered: Delivered) -> Message:
    if delivered.event == "reset":
        return Message(COMMAND, "", "", {}, delivered.id)
    data = delivered.data
    namespace, ts = str(data.get("type", "")), str(data.get("timestamp", ""))
    return Message(delivered.event, namespace, ts, data, delivered.id)
