"""HTTP as it is on the wire: status, headers and bytes, with nothing made nicer on the way."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import h11

PATIENCE_S = 180.0  # a cold function on a busy machine: slow is not wrong
LOOK_S = 0.02
STREAM = "text/event-stream"
JSON = "application/json"
_COMMENT = re.compile(rb":[^\r\n]*\n")
_BLOCK = re.compile(
    rb"id: ([0-9a-f]{24}|[0-9]{1,13})\nevent: ([a-z]+)\ndata: ([^\r\n]+)\n\n", re.ASCII
)
# A stream without a cursor begins with one; with a cursor, the first event on a stage says when to
# resume.
_BEGINNING = re.compile(rb"retry: 500\n(?:id: [0-9a-f]{24}\nevent: live\ndata: {}\n\n)?")
Held = TypeVar("Held")
_REPLICATION = 0x800000  # the bit of a slot that marks a place in a copy


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


@dataclass(frozen=True, slots=True)
class Block:
    """One event as it came."""

    id: str
    name: str
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def is_row(self) -> bool:
        return len(self.id) == 24 and int(self.id[18:], 16) >= _REPLICATION

    def __str__(self) -> str:
        return f"{self.name} {self.data['id']}" if "id" in self.data else self.name


class Ended(AssertionError):
    """The server ended the answer."""


class Connection:
    """One request on a connection of its own, and the answer as it arrives."""

    def __init__(
        self,
        port: int,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        buffer_bytes: int = 0,
    ) -> None:
        self._socket = socket.socket()
        if buffer_bytes:  # before it connects, or the window is negotiated without it
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(("127.0.0.1", port))
        self._http = h11.Connection(h11.CLIENT)
        named = [("host", f"127.0.0.1:{port}"), *headers]
        if body:
            named.append(("content-length", str(len(body))))
        self._send(h11.Request(method=method, target=path, headers=named))
        if body:
            self._send(h11.Data(body))
        self._send(h11.EndOfMessage())
        self.body = b""
        self.answer = self._head()

    def close(self) -> None:
        self._socket.close()

    def receive(self, within_s: float) -> bool:
        """Receive more of the body; return False if nothing came."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                raise Ended("the answer was cut") from None
            if isinstance(event, h11.Data):
                self.body += bytes(event.data)
                return True
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                raise Ended("the answer is over")
            self._socket.settimeout(max(0.001, within_s))
            try:
                self._http.receive_data(self._socket.recv(1 << 16))
            except TimeoutError:
                return False

    def whole(self) -> Answer:
        """Return the answer with its whole body."""
        try:
            while self.receive(PATIENCE_S):
                pass
        except Ended:
            return Answer(self.answer.status, self.answer.headers, self.body)
        finally:
            self.close()
        raise AssertionError("the answer does not end")

    def _send(self, event: h11.Event) -> None:
        self._socket.sendall(self._http.send(event) or b"")

    def _head(self) -> Answer:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(self._socket.recv(1 << 16))
        assert isinstance(event, h11.Response), event
        headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        return Answer(event.status_code, headers)


class Listener:
    """A consumer that takes the stream by the letter: a byte out of place is a failure."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._at = 0
        self._has_begun = False

    @property
    def answer(self) -> Answer:
        return self._connection.answer

    @property
    def raw(self) -> bytes:
        """Everything that was received, as oplog would have sent it: without the beginning."""
        if not self._has_begun and b"\n\n" in self._connection.body:
            self._connection.body = _BEGINNING.sub(b"", self._connection.body, count=1)
            self._has_begun = True
        return self._connection.body

    def close(self) -> None:
        self._connection.close()

    def next(self, within_s: float = PATIENCE_S) -> Block:
        block = self._next(within_s)
        assert block is not None, f"nothing came in {within_s} s"
        return block

    def take(self, count: int) -> list[Block]:
        return [self.next() for _ in range(count)]

    def until(self, name: str) -> list[Block]:
        """Return every block up to the first event *name*, and that one."""
        blocks = [self.next()]
        while blocks[-1].name != name:
            blocks.append(self.next())
        return blocks

    def silent(self, for_s: float) -> bool:
        return self._next(for_s) is None

    def _next(self, within_s: float) -> Block | None:
        deadline = time.monotonic() + within_s
        while True:
            block = self._parsed()
            left = deadline - time.monotonic()
            if block is not None or left <= 0:
                return block
            self._connection.receive(left)

    def _parsed(self) -> Block | None:
        while comment := _COMMENT.match(self.raw, self._at):
            self._at = comment.end()
        if b"\n\n" not in self.raw[self._at :]:
            return None
        block = _BLOCK.match(self.raw, self._at)
        assert block is not None, self.raw[self._at : self._at + 300]
        self._at = block.end()
        return Block(*(part.decode() for part in block.groups()))


def until(condition: Callable[[], Held], within_s: float = PATIENCE_S) -> Held:
    """Return the result of *condition* once that is true."""
    deadline = time.monotonic() + within_s
    while not (held := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(LOOK_S)
    return held
