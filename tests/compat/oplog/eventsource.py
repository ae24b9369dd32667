"""An EventSource as the WHATWG specification describes it, without the network."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.compat.oplog.oplogc import Event


@dataclass
class EventSource:
    """Interprets streams; between two of them it keeps the last id and the delay."""

    last_id: str = ""
    retry_ms: int = 3000
    events: list[Event] = field(default_factory=list)

    def read(self, stream: str) -> None:
        """Interpret one whole *stream*: a block that is not complete is discarded."""
        block: list[tuple[str, str]] = []
        for line in stream.split("\n")[:-1]:
            if line:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                block.append((name, value))
                if name == "retry" and value.isdecimal():
                    self.retry_ms = int(value)
            else:
                self._dispatch(block)
                block = []

    def _dispatch(self, block: list[tuple[str, str]]) -> None:
        fields = dict(block)
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            self.events.append(Event(self.last_id, fields.get("event") or "message", {}))
