"""A host among others, as producers, consumers and operators see its feeds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.compat.oplog import wire
from tests.conformance.listeners import SseListener
from tests.hosts import raise_floor
from tidings.server.running import Server

PATIENCE_S = 180.0  # a relay that failed for a while tries again within a minute

Entry = tuple[str, str, Any]  # id, event, data
Sources = dict[str, dict[str, Any]]


class Place:
    """A host with configured upstreams; its *data* outlives it."""

    def __init__(self, kind: type[Server], data: Path) -> None:
        self.host = kind(data=data)
        self.url, self.ws_url, self.port = self.host.url, self.host.ws_url, self.host.port
        self.client = httpx.Client(timeout=30)

    def chain(self, feeds: Sequence[str], sources: Sources, coordinator: str = "") -> None:
        values = {"TIDINGS_SOURCES": json.dumps(sources), "TIDINGS_COORDINATOR": coordinator}
        settings = [f"--setting={name}={text}" for name, text in values.items() if text]
        self.host.arguments = ["--feeds", ",".join(feeds), *settings]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.host.__exit__(None, None, None)

    def start(self) -> None:
        self.host.start()

    def kill(self) -> None:
        self.host.kill()

    def stop(self) -> None:
        self.host.stop()

    def feed(self, name: str) -> str:
        """Return the address of a feed, as others chain it."""
        return f"{self.url}feeds/{name}"

    def post(self, name: str, *ids: str, event: str = "update", kind: str = "video") -> None:
        """Post one page."""
        operations = [{"event": event, "type": kind, "id": each} for each in ids]
        answer = self.client.post(f"{self.feed(name)}/ops", json=operations)
        assert answer.status_code < 300, answer.text

    def relay(self, name: str) -> dict[str, Any]:
        relay: dict[str, Any] = self.client.get(f"{self.feed(name)}/relay").json()
        return relay

    def act(self, name: str, action: str, **fields: str) -> httpx.Response:
        return self.client.post(f"{self.feed(name)}/relay/{action}", json=fields)

    def log(self, name: str) -> list[Entry]:
        """Return every entry of the log."""
        ends = self.client.get(f"{self.feed(name)}/log").json()
        if ends["oldest"] is None:
            return []
        answer = self.client.get(f"{self.feed(name)}/log", params={"from": ends["oldest"]})
        return [(each["id"], each["event"], each["data"]) for each in answer.json()["entries"]]

    def state(self, name: str) -> dict[str, Any]:
        """Return the objects that a consumer without a cursor receives before `live`."""
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
        """Trim the log as retention does, but now."""
        raise_floor(self.host, name, page)


def until(is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until *is_so*, also of a host that is killed or starting and does not answer."""

    def holds() -> bool:
        try:
            return is_so()
        except (httpx.HTTPError, KeyError):
            return False

    wire.until(holds, within_s)


def arrived(at: Place, name: str, page: int) -> None:
    """Wait until *at* has the log up to *page*."""
    try:
        until(lambda: at.relay(name)["head"] >= page)
    except AssertionError:
        raise AssertionError(f"page {page} is not here: {at.relay(name)}") from None
