"""A plain WebSocket client and plain HTTP, as Triton's services use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.compat.oplog.wire import PATIENCE_S

SILENCE_S = 0.3  # an item that has not arrived by then, after a later one, was not sent

# The payloads of the proposal, unchanged.
REGISTRATION = """{
    "instance": "de1aac97-6f85-4ba9-b51e-514f48a6a46c",
    "service": "tcns",
    "changeKind": {
         "resource": "vm",
         "subResources": ["nic", "alias"]
    }
}"""
ITEM = """{
    "changeKind": {
         "resource": "vm",
         "subResources": ["nic"]
        },
    "changedResourceId": "78615996-1a0e-40ca-974e-8b484774711a"
}"""


def v1(instance: str = "i1", resource: str = "vm", *subs: str) -> dict[str, Any]:
    kind = {"resource": resource, "subResources": list(subs or ("nic", "alias"))}
    return {"instance": instance, "service": "tcns", "changeKind": kind}


def item(name: str = "x1", *subs: str, resource: str = "vm", **more: Any) -> dict[str, Any]:
    kind = {"resource": resource, "subResources": list(subs or ("nic",))}
    return {"changeKind": kind, "changedResourceId": name, **more}


@dataclass(frozen=True, slots=True)
class Socket:
    """One connection of a listener."""

    raw: ClientConnection

    def say(self, message: object) -> None:
        self.raw.send(message if isinstance(message, str) else json.dumps(message))

    def text(self) -> str:
        return str(self.raw.recv(timeout=PATIENCE_S))

    def hear(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text())
        return found

    def silent(self) -> bool:
        try:
            self.raw.recv(timeout=SILENCE_S)
        except TimeoutError:
            return True
        return False

    def ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            self.raw.recv(timeout=PATIENCE_S)
        except ConnectionClosed:
            return True
        return False


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """A feed of a host as listeners and publishers see it."""

    port: int
    name: str

    @property
    def path(self) -> str:
        return f"/feeds/{self.name}/changefeeds"

    @contextmanager
    def connected(self, version: str | None = None, path: str | None = None) -> Iterator[Socket]:
        headers = {} if version is None else {"Accept-Version": version}
        url = f"ws://127.0.0.1:{self.port}{path or self.path}"
        with connect(url, additional_headers=headers, close_timeout=1) as raw:
            yield Socket(raw)

    @contextmanager
    def registered(self, message: object, version: str | None = None) -> Iterator[Socket]:
        """Yield a listener that has been answered."""
        with self.connected(version) as socket:
            socket.say(message)
            socket.hear()
            yield socket

    def ask(self, path: str = "", **query: str) -> httpx.Response:
        return httpx.get(
            f"http://127.0.0.1:{self.port}{self.path}{path}", params=query, timeout=PATIENCE_S
        )

    def objects(self, **query: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/feeds/{self.name}/objects"
        answer = httpx.get(url, params=query, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("/stats").json()
        return found

    def send(self, body: object) -> httpx.Response:
        """Publish *body*, unchanged if it is a text."""
        content = body if isinstance(body, str) else json.dumps(body)
        url = f"http://127.0.0.1:{self.port}{self.path}"
        return httpx.post(
            url, content=content, headers={"content-type": "application/json"}, timeout=PATIENCE_S
        )

    def publish(self, *items: dict[str, Any]) -> None:
        answer = self.send(list(items))
        assert answer.status_code == 204, answer.text

    def post(self, *operations: dict[str, Any]) -> None:
        url = f"http://127.0.0.1:{self.port}/feeds/{self.name}/ops"
        assert httpx.post(url, json=list(operations), timeout=PATIENCE_S).status_code == 204
