"""One feed of a host, as oplog's producers and consumers see it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from tests.compat.oplog.wire import JSON, STREAM, Answer, Block, Connection, Listener, until
from tidings.server.running import Server

_AS_IT_IS = "/%,&="  # as oplog's client, which put filters into the address as they were


def feed_of(host: Server, name: str) -> Feed:
    """Return the feed *name* of *host*."""
    return Feed(host.port, name)


def op(name: str = "x1", event: str = "insert", **fields: Any) -> dict[str, Any]:
    return {"event": event, "type": "video", "id": name, **fields}


def ask(
    port: int, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """Return the whole answer to one request."""
    return Connection(port, method, path, (headers or {}).items(), body).whole()


@dataclass(frozen=True, slots=True)
class Feed:
    port: int
    name: str

    @property
    def path(self) -> str:
        return f"/feeds/{self.name}/ops"

    def send(self, body: bytes, **headers: str) -> Answer:
        """POST *body* as it is; a header's name is written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.port, "POST", self.path, {"content-type": JSON, **named}, body)

    def post(self, *operations: dict[str, Any]) -> list[str]:
        """Append *operations* together and return their event ids."""
        answer = self.send(json.dumps(operations).encode(), prefer="return=representation")
        assert answer.status == 200, answer
        ids: list[str] = json.loads(answer.body)["ids"]
        return ids

    def open(
        self,
        last_id: str | None = None,
        filters: Mapping[str, str] = MappingProxyType({}),
        buffer_bytes: int = 0,
    ) -> Listener:
        headers = [("accept", STREAM)]
        if last_id is not None:
            headers.append(("last-event-id", last_id))
        query = "&".join(
            f"{name}={quote(value, safe=_AS_IT_IS)}" for name, value in filters.items()
        )
        path = f"{self.path}?{query}" if query else self.path
        connection = Connection(self.port, "GET", path, headers, buffer_bytes=buffer_bytes)
        return Listener(connection)

    @contextlib.contextmanager
    def listening(self, last_id: str | None = None, **filters: str) -> Iterator[Listener]:
        listener = self.open(last_id, filters)
        try:
            assert listener.answer.status == 200, listener.answer
            yield listener
        finally:
            listener.close()

    def copied(self, last_id: str = "0", **filters: str) -> list[Block]:
        """Return the events of a replication from *last_id*, `live` included."""
        with self.listening(last_id, **filters) as listener:
            return listener.until("live")

    def status(self) -> dict[str, Any]:
        answer = ask(self.port, "GET", f"/feeds/{self.name}/status")
        assert answer.status == 200, answer
        status: dict[str, Any] = json.loads(answer.body)
        return status

    def handled(self, page: int) -> None:
        """Return when followers have handled *page*, but for the one that a schedule wakes."""
        until(lambda: min(self._checkpoints()) >= page)

    def _checkpoints(self) -> list[int]:
        followers = self.status()["followers"]
        return [int(each["checkpoint"]) for each in followers if each["name"] != "archive"]

    def settle(self) -> None:
        """Return when the state holds everything that was posted."""
        until(lambda: all(block.is_row for block in self.copied("1")[:-1]))


def said(blocks: list[Block]) -> list[str]:
    """`insert x1`, `reset`, ..."""
    return [str(block) for block in blocks]
