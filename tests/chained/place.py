"""A twin among others, as producers, consumers and operators see its feeds."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.local.running import Twin
from tidings.local.store import engine, tables

from tests.conformance.listeners import SseListener

PATIENCE_S = 90.0  # a relay that failed for a while tries again within a minute
LOOK_S = 0.1
_PORTS = (20_000, 32_000)  # below those that the kernel gives to connections

Entry = tuple[str, str, Any]  # id, event, data
Sources = dict[str, dict[str, Any]]


class Place(Twin):
    """A twin that is told what to copy before it is started; *data* outlives it."""

    def __init__(self, data: Path) -> None:
        super().__init__(data=data)
        self._move_to(kept_port(), kept_port())
        self.client = httpx.Client(timeout=30)

    def _move_to(self, port: int, dynamodb_port: int) -> None:
        self.port, self.dynamodb_port = port, dynamodb_port
        self.url = f"http://127.0.0.1:{port}/"
        self.ws_url = f"ws://127.0.0.1:{port}/ws"
        self.dynamodb_url = f"http://127.0.0.1:{dynamodb_port}"

    def chain(self, feeds: Sequence[str], sources: Sources, coordinator: str = "") -> None:
        said = {"TIDINGS_SOURCES": json.dumps(sources), "TIDINGS_COORDINATOR": coordinator}
        settings = [f"--setting={name}={text}" for name, text in said.items() if text]
        self._arguments = ["--feeds", ",".join(feeds), *settings]

    def feed(self, name: str) -> str:
        """Its address, as others chain it."""
        return f"{self.url}feeds/{name}"

    def post(self, name: str, *ids: str, event: str = "update", kind: str = "video") -> None:
        """One page."""
        operations = [{"event": event, "type": kind, "id": each} for each in ids]
        answer = self.client.post(f"{self.feed(name)}/ops", json=operations)
        assert answer.status_code < 300, answer.text

    def relay(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"{self.feed(name)}/relay").json()
        return found

    def act(self, name: str, action: str, **fields: str) -> httpx.Response:
        return self.client.post(f"{self.feed(name)}/relay/{action}", json=fields)

    def log(self, name: str) -> list[Entry]:
        """Every entry of the log."""
        ends = self.client.get(f"{self.feed(name)}/log").json()
        if ends["oldest"] is None:
            return []
        answer = self.client.get(f"{self.feed(name)}/log", params={"from": ends["oldest"]})
        return [(each["id"], each["event"], each["data"]) for each in answer.json()["entries"]]

    def state(self, name: str) -> dict[str, Any]:
        """What a consumer with nothing is told before `live`."""
        objects: dict[str, Any] = {}
        with self.listening(name, "0") as listener:
            assert listener.next(within_s=PATIENCE_S).name == "reset"
            while (heard := listener.next(within_s=PATIENCE_S)).name != "live":
                key = f"{heard.data['type']}/{heard.data['id']}"
                if heard.name == "delete":
                    objects.pop(key, None)
                else:
                    objects[key] = heard.data
        return objects

    @contextlib.contextmanager
    def listening(
        self, name: str, cursor: str, query: Mapping[str, str] | None = None
    ) -> Iterator[SseListener]:
        address = f"{self.feed(name)}/ops"
        listener = SseListener(address, dict(query or {}), {"Last-Event-ID": cursor})
        with contextlib.closing(listener):
            yield listener

    def raise_floor(self, name: str, page: int) -> None:
        """As retention does, but now."""
        client = engine.tables_client(self.dynamodb_url)
        stored = DynamoDBLog(client, tables.name_of("log"), tables.name_of("control"))
        stored.raise_floor(name, page)


def kept_port() -> int:
    """
    A free port that no connection is given by chance.

    Twins are told of each other before they are started, and stopped and started again.
    """
    while True:
        port = random.randint(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def until(is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
    """
    Wait; how many seconds it took.

    Raises:
        AssertionError: it did not become so.
    """
    begun = time.monotonic()
    while not _holds(is_so):
        assert time.monotonic() < begun + within_s, f"not within {within_s} s"
        time.sleep(LOOK_S)
    return time.monotonic() - begun


def arrived(at: Place, name: str, page: int) -> None:
    """Wait until *at* has the log up to *page*."""
    try:
        until(lambda: at.relay(name)["head"] >= page)
    except AssertionError:
        raise AssertionError(f"page {page} is not here: {at.relay(name)}") from None


def _holds(is_so: Callable[[], bool]) -> bool:
    """A twin that is killed or starting does not answer."""
    try:
        return is_so()
    except (httpx.HTTPError, KeyError):
        return False
