"""Consumers of each kind. Each one keeps what it received since its last copy, and a fold of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.oracle.history import History

ROW_SLOT = 0x800000  # 5.2: slots from here on are positions in a copy
CHANGE = "change"  # the type of changes (12.1), which have no object
_SILENT_S = 40.0  # 7.3: something is sent every 25 seconds
_AGAIN_S = 0.2
_BATCH = (
    100  # messages per acknowledgement, each of which takes some 20 ms while all producers post
)

Url = Callable[[], str]
Over = Callable[[], bool]
Position = tuple[int, int]
Item = tuple[str, str, dict[str, Any]]  # id, event, data


def position(event_id: str) -> Position:
    """Return page and slot of an event id (5.1)."""
    return int(event_id[8:18], 16), int(event_id[18:], 16)


def new_client() -> httpx.Client:
    """Return a client without TLS, because reading the certificates needs 60 to 100 ms of CPU.

    All readers connect again and again while the server is away; with TLS, they kept one core busy.
    """
    return httpx.Client(timeout=_SILENT_S, verify=False)


class Reader:
    """A consumer with a cursor.

    *entries* are the positions of the log that it received since the copy, or since it began;
    *held* is the latest data of each object. *types* is its filter.
    """

    name = "reader"

    def __init__(self, url: Url, history: History, is_over: Over, types: tuple[str, ...] = ()):
        self.types, self.entries, self.held = types, list[Position](), dict[str, Any]()
        self.resets = 0
        self.error: object = None
        self._url, self._history, self._is_over = url, history, is_over
        self._cursor, self._last = "0", (0, -1)

    def __call__(self) -> None:
        while not self._is_over():
            try:
                for item in self._connection():
                    self._take(*item)
                    if self._is_over():
                        return
            except (httpx.HTTPError, WebSocketException, OSError, TimeoutError) as error:
                self.error = (time.strftime("%X"), error)
                time.sleep(_AGAIN_S)

    @property
    def reached(self) -> Position:
        return self._last

    def describe(self) -> str:
        counts = f"{len(self.entries)} entries, {len(self.held)} objects"
        return f"cursor {self._cursor}, {counts}, last error {self.error!r}"

    def _connection(self) -> Iterator[Item]:
        raise NotImplementedError

    def _take(self, event_id: str, event: str, data: dict[str, Any]) -> None:
        if event == "reset":
            self.held, self.entries, self._last = {}, [], (0, -1)
            self.resets += 1
        elif event != "live":
            self._take_operation(event_id, event, data)
        if event_id:
            self._cursor = "0" if event == "reset" else event_id

    def _take_operation(self, event_id: str, event: str, data: dict[str, Any]) -> None:
        place = position(event_id)
        if place[1] >= ROW_SLOT:
            self.entries = []
            self._last = (0, -1)  # 6.4: a row restarts the comparison
        elif place <= self._last:
            return  # 6.4: the last events may repeat
        else:
            self.entries.append(place)
            self._last = place
        if data["type"] == CHANGE:
            return
        key = f"{data['type']}/{data['id']}"
        if event == "delete":
            self.held.pop(key, None)
        else:
            self.held[key] = data.get("data")


class Events(Reader):
    """Server-Sent Events, by blocks of lines."""

    name = "sse"
    accept = "text/event-stream"

    def _connection(self) -> Iterator[Item]:
        query = {"types": ",".join(self.types)} if self.types else {}
        headers = {"Accept": self.accept, "Last-Event-ID": self._cursor}
        with (
            new_client() as client,
            client.stream("GET", f"{self._url()}/ops", params=query, headers=headers) as answer,
        ):
            if not answer.is_success:
                raise httpx.HTTPError(str(answer.status_code))
            yield from self._items(answer.iter_lines())

    def _items(self, lines: Iterator[str]) -> Iterator[Item]:
        block: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            if line and name:
                block[name] = value
            elif not line and "event" in block:
                yield block["id"], block["event"], json.loads(block["data"])
            if not line:
                block = {}


class Lines(Events):
    """The same stream as NDJSON."""

    name = "ndjson"
    accept = "application/x-ndjson"

    def _items(self, lines: Iterator[str]) -> Iterator[Item]:
        for line in filter(None, lines):
            item = json.loads(line)
            yield item["id"], item["event"], item.get("data", {})


class Socket(Reader):
    """A WebSocket."""

    name = "ws"

    def _connection(self) -> Iterator[Item]:
        url = self._url().replace("http", "ws", 1)
        with connect(f"{url}/ws", max_size=None) as socket:
            wanted: dict[str, Any] = {"action": "resume", "cursor": self._cursor}
            if self.types:  # 7.2: an empty array matches nothing
                wanted["types"] = list(self.types)
            socket.send(json.dumps(wanted))
            while True:
                message = json.loads(socket.recv(timeout=_SILENT_S))
                if "error" in message:
                    raise OSError(message["error"])
                for event in message.get("events", ()):
                    yield event["id"], event["event"], event.get("data", {})
                if "cursor" in message and "reply" not in message:
                    self._cursor = message["cursor"]
                if self._is_over():
                    return


class Lister(Reader):
    """A client of changeagent: it waits for lists, and begins again when changes were lost."""

    name = "changes"
    _since = 0

    def _connection(self) -> Iterator[Item]:
        with new_client() as client:
            while not self._is_over():
                query = {"since": self._since, "limit": 50, "block": 2}
                answer = client.get(f"{self._url()}/changes", params=query)
                if not answer.is_success:
                    raise httpx.HTTPError(answer.text)
                told = answer.json()
                if told.get("lost"):
                    self.entries, self._last, self._since = [], (0, -1), 0
                    self.resets += 1
                    continue
                for change in told["changes"]:
                    place = divmod(change["_id"], 1024)
                    if place <= self._last:
                        self._history.violated(f"12.6 {place} after {self._last}")
                    self.entries.append(place)
                    self._last = place
                self._since = told["next"]
        yield from ()


class Worker(Reader):
    """A worker of a named consumer: it acknowledges batches of messages, and sometimes crashes."""

    name = "named"

    def __init__(self, url: Url, history: History, is_over: Over, types: tuple[str, ...] = ()):
        super().__init__(url, history, is_over, types)
        self.taken: set[int] = set()  # numbers of operations
        self._leases = 0

    def _connection(self) -> Iterator[Item]:
        path = f"{self._url()}/feeds/main/consumers/oracle"
        with new_client() as client:
            client.put(path, json={"from": "oldest"})
            lease = client.post(f"{path}/lease", json={"worker": "w"})
            if not lease.is_success:
                raise httpx.HTTPError(lease.text)
            self._leases += 1
            fence, cursor = lease.json()["fence"], lease.json()["cursor"]
            headers = {"Accept": "application/x-ndjson", "Last-Event-ID": cursor}
            until = _BATCH * self._leases  # it crashes after these, with a batch unacknowledged
            with client.stream("GET", f"{self._url()}/ops", headers=headers) as answer:
                for count, line in enumerate(filter(None, answer.iter_lines())):
                    item = json.loads(line)
                    if item["event"] == "reset" or position(item["id"])[1] >= ROW_SLOT:
                        raise OSError("14.3: a copy, although the lease promised the log")
                    if item["event"] != "live":
                        self._last = position(item["id"])
                        self.taken.add(item["data"]["data"]["n"])
                    if count == until:
                        raise OSError("the worker dies")
                    told = {"fence": fence, "through": item["id"]}
                    if count % _BATCH == 0 and not client.post(f"{path}/ack", json=told).is_success:
                        raise OSError("the lease is lost")
                    if self._is_over():
                        return
        yield from ()


KINDS: tuple[type[Reader], ...] = (Events, Lines, Socket, Lister, Worker)
