"""Messages that a store is given."""

from __future__ import annotations

from tidings.pipelines import Message

RESET = Message("command", "", "", {}, "1")


def video(op: str, name: str, page: int = 0, data: object = None) -> Message:
    """Return the operation *op* of a video, the first one of *page* of the log."""
    fields = {"type": "video", "id": name, "data": data}
    return Message(op, "video", "", fields, f"65650000{page:010x}000000")
