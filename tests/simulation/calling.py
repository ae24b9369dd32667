"""
One end of a WebSocket: connects, says, hears, leaves with or without a word.

What the feed sends is handled the moment it is sent; what the client says travels a while.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .world import World

_ANSWER_MS = 10_000  # 8.7: no answer within this means connect again
_SWALLOW_MS = 3_000


class Caller:
    """*connection_id* is that of the connection it has now, empty without one."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.connection_id = ""
        self.connections = 0

    @property
    def connected(self) -> bool:
        return self.connection_id != ""

    def _hear(self, text: str) -> None:
        raise NotImplementedError

    def _standing(self) -> object:
        """What the history notes of it when it leaves."""
        raise NotImplementedError

    def _connect(self) -> bool:
        self.connections += 1
        connection_id = f"{self.name}.{self.connections}"
        opened: list[bool] = []
        self.world.connect(connection_id, lambda: opened.append(True))
        if not self._until(lambda: bool(opened)):
            return False
        self.connection_id = connection_id
        self.world.stores.sockets.heard[connection_id] = self._hear
        self.world.stores.sockets.closed[connection_id] = self._closed
        return True

    def _leave(self, why: str) -> None:
        """Close the connection; the gateway tells the feed, if it does."""
        if not self.connected:
            return
        self.world.machine.note(self.name, why, self._standing())
        self.world.stores.sockets.heard.pop(self.connection_id, None)
        self.world.stores.sockets.closed.pop(self.connection_id, None)
        self.world.disconnect(self.connection_id)
        self._closed()

    def _vanish(self) -> None:
        """Gone without a word: what is sent for a while is taken and lost."""
        lines, connection_id = self.world.stores.sockets, self.connection_id
        lines.swallowing.add(connection_id)
        self.world.scheduler.after(_SWALLOW_MS, lambda: lines.swallowing.discard(connection_id))
        self._leave("vanishes")

    def _closed(self) -> None:
        self.connection_id = ""

    def _say(self, **message: Any) -> None:
        connection_id, text = self.connection_id, json.dumps(message)
        delay = self.world.random.uniform(5, 60)
        self.world.scheduler.after(delay, lambda: self.world.receive(connection_id, text))

    def _until(self, true: Callable[[], bool]) -> bool:
        until = self.world.scheduler.now_ms + _ANSWER_MS
        while not true() and self.world.scheduler.now_ms < until:
            self.world.scheduler.sleep(100)
        return true()
