"""Clients of event streams, each in a process of its own, and the events they have received."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.oplog.wire import until
from tests.unit.client.command import TIDINGS
from tests.world import installing
from tests.world.messages import Client


@dataclass(frozen=True, slots=True)
class Event:
    """One event as a library handed it out."""

    id: str
    name: str
    data: Any


def python(name: str, url: str) -> list[str]:
    return [sys.executable, str(installing.CLIENTS / "streams.py"), name, url]


def _node(name: str, url: str) -> list[str]:
    return ["node", "--no-warnings", str(installing.node_folder() / "streams.mjs"), name, url]


def _go(name: str, url: str) -> list[str]:
    return [str(installing.go_program()), name, url]


def _curl(version: str, url: str) -> list[str]:
    return ["curl", "-sN", f"--{version}", "-H", "Accept: text/event-stream", url]


# Clients that connect again by themselves, and all clients.
RESUMING: Mapping[str, Callable[[str], list[str]]] = {
    "eventsource": lambda url: _node("eventsource", url),
    "undici": lambda url: _node("undici", url),
    "go-r3labs": lambda url: _go("r3labs", url),
    "go-tmaxmax": lambda url: _go("tmaxmax", url),
}
LIBRARIES: Mapping[str, Callable[[str], list[str]]] = {
    **RESUMING,
    "httpx-sse": lambda url: python("httpx_sse", url),
    "sseclient": lambda url: python("sseclient", url),
    "curl": lambda url: _curl("http1.1", url),
    "curl-http2": lambda url: _curl("http2", url),
}


class Reader(Client):
    """A client of an event stream; *states* is what it reports of its connection."""

    def __init__(self, command: Sequence[str], authority: Path | None = None) -> None:
        super().__init__(command, {} if authority is None else _trusted(authority))
        self.events: list[Event] = []
        self.states: list[str] = []
        self._block: dict[str, str] = {}

    @property
    def ids(self) -> list[str]:
        """Return the ids of all events that were received."""
        return [event.id for event in self.events]

    def until(self, *ids: str) -> None:
        """Return when the last events are *ids*, while the client is still connected."""
        until(lambda: self.ids[-len(ids) :] == list(ids) or not self.runs)
        assert self.ids[-len(ids) :] == list(ids), (self.ids, self.states, self.command)
        assert self.runs, self.command

    def take(self, line: str) -> None:
        """Add the event of one *line* of JSON, or of the last line of a block of the stream."""
        if line.startswith("{"):
            self._add(json.loads(line))
        elif line.strip():
            name, _, value = line.rstrip("\n").partition(": ")
            self._block[name] = value
        elif "event" in self._block:
            self._add(self._block)
            self._block = {}

    def _add(self, message: Mapping[str, Any]) -> None:
        if "state" in message:
            self.states.append(message["state"])
            return
        data = message.get("data") or "{}"
        parsed = json.loads(data) if isinstance(data, str) else data
        self.events.append(Event(message["id"], message["event"], parsed))


def tail(url: str, *options: str) -> list[str]:
    """Return the command of our own client, which prints lines of the same form."""
    return [*TIDINGS, "tail", url, "--json", *options]


def _trusted(authority: Path) -> dict[str, str]:
    """Return the variables by which OpenSSL, Go, Node.js and curl trust a certificate."""
    path = str(authority)
    return {"SSL_CERT_FILE": path, "NODE_EXTRA_CA_CERTS": path, "CURL_CA_BUNDLE": path}
