"""The log of the small server on loopback, and one reader's way through it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SECONDS = 0x65000000  # every page was committed then


def event_id(page: int, slot: int = 0) -> str:
    return f"{SECONDS:08x}{page:010x}{slot:06x}"


@dataclass
class Faults:
    """What goes wrong next. Lists are used up from the front."""

    refuse: list[tuple[int, str]] = field(default_factory=list)  # readers: status, code
    posts: list[str] = field(default_factory=list)  # "503", "lost" (appended, no answer), "422"
    pongs: list[str | None] = field(default_factory=list)  # state to say, None: say nothing
    repeat: int = 0  # resume this many pages too early
    goodbye_after: int | None = None  # close each connection after this many events


class FakeFeed:
    """The log and all connections. Use it from the server's loop, except for `append`."""

    def __init__(self) -> None:
        self.pages: list[list[dict[str, Any]]] = []
        self.keys: dict[str, list[str]] = {}
        self.faults = Faults()
        self.requests: list[dict[str, str]] = []  # headers of each GET and POST
        self.messages: list[dict[str, Any]] = []  # of each WebSocket
        self.generation = 0  # connections of an older one are cut
        self.password = ""  # which a WebSocket has to send
        self.changed = asyncio.Event()

    @property
    def report(self) -> dict[str, Any]:
        """Return the content of `/status`: one follower is up to date, one never ran."""
        head = len(self.pages)
        followers = [{"name": "push", "lag_pages": 0}, {"name": "state", "lag_pages": head}]
        return {"status": "OK", "clients": 1, "followers": followers}

    def append(self, operations: list[dict[str, Any]]) -> list[str]:
        self.pages.append(operations)
        self.tell()
        return [event_id(len(self.pages), slot) for slot in range(len(operations))]

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def end(self) -> str:
        return event_id(len(self.pages), 0x7FFFFF)

    def events(self, page: int, slot: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(max(page, 1), len(self.pages) + 1):
            for at, operation in enumerate(self.pages[number - 1]):
                if (number, at) > (page, slot):
                    yield event_id(number, at), operation

    def fold(self) -> dict[tuple[str, str], dict[str, Any]]:
        objects: dict[tuple[str, str], dict[str, Any]] = {}
        for _, operation in self.events(0, 0):
            key = (operation["type"], operation["id"])
            objects.pop(key, None)
            if operation["event"] != "delete":
                objects[key] = operation
        return objects


@dataclass
class Reader:
    """One connection: its filter and its position."""

    feed: FakeFeed
    cursor: str
    types: list[str] | None
    parents: list[str] | None

    def __post_init__(self) -> None:
        self.generation = self.feed.generation
        self.copy = self.cursor == "0"
        self.page, self.slot = len(self.feed.pages), 0x7FFFFF
        if len(self.cursor) == 24 and int(self.cursor[18:], 16) < 0x800000:
            self.page, self.slot = int(self.cursor[8:18], 16), int(self.cursor[18:], 16)
            self.page = max(0, self.page - self.feed.faults.repeat)
        elif self.cursor not in ("", "now", "0"):
            self.copy = True

    @property
    def place(self) -> str:
        return event_id(self.page, self.slot)

    @property
    def is_cut(self) -> bool:
        return self.generation != self.feed.generation

    def next(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the events since the last call, as id, name and data."""
        found: list[tuple[str, str, dict[str, Any]]] = []
        if self.copy:
            self.copy = False
            row = f"{0:08x}{len(self.feed.pages):010x}800000"
            if self.cursor == "0":
                found.append(("1", "reset", {}))
            for operation in self.feed.fold().values():
                if self._wants(operation):
                    found.append((row, "insert", _data(operation)))
            found.append((self.feed.end, "live", {}))
            self.page, self.slot = len(self.feed.pages), 0x7FFFFF
        for at, operation in self.feed.events(self.page, self.slot):
            self.page, self.slot = int(at[8:18], 16), int(at[18:], 16)
            if self._wants(operation):
                found.append((at, operation["event"], _data(operation)))
        return found

    def _wants(self, operation: dict[str, Any]) -> bool:
        if self.types is not None and operation["type"] not in self.types:
            return False
        parents = operation.get("parents", [])
        return self.parents is None or any(parent in self.parents for parent in parents)


def _data(operation: dict[str, Any]) -> dict[str, Any]:
    data = {"timestamp": "2026-11-20T17:19:10.94Z", "parents": [], **operation}
    del data["event"]
    return data
