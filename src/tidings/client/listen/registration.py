"""One registration: a WebSocket, and a thread that puts its items into the buffer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tidings.client.errors import Lost
from tidings.client.listen.buffers import Buffer
from tidings.client.listen.messages import INVALID_STATE, OVERFLOW, Bootstrap, bootstraps
from tidings.client.transport.websocket import OPTIONS, PING, failures, goodbye

ANSWER_S = 30.0  # for the answer to a registration; the function may start cold
PONG_S = 10.0  # the same as for other clients of the feed


class Registration:
    """
    A registration at *url*, from `__enter__` until `close`.

    It sends a ping after *ping_s* of silence.
    """

    def __init__(self, url: str, message: str, buffer: Buffer, ping_s: float) -> None:
        self._url, self._message, self._ping_s = url, message, ping_s
        self._buffer = buffer
        self._changed = threading.Condition()
        self._failure = ""
        self._pinged_s: float | None = None
        self._thread = threading.Thread(target=self._read, name="tidings-listener", daemon=True)
        self._stack = ExitStack()
        self._socket: ClientConnection
        self.routes: list[Bootstrap] = []

    def __enter__(self) -> Registration:
        """
        Connect and register.

        Raises:
            Lost: the connection failed, or the answer is not one to a registration.
        """
        with failures(self._url):
            self._socket = self._stack.enter_context(connect(self._url, **OPTIONS))
        try:
            self._socket.send(self._message)
            self.routes = bootstraps(str(self._socket.recv(timeout=ANSWER_S)))
        except (ConnectionClosed, TimeoutError, Lost) as error:
            self._stack.close()
            raise _as_lost(error) from None
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close("closed")
        self._stack.close()
        self._thread.join()
        with self._changed:
            self._buffer.clear()

    def close(self, reason: str) -> None:
        """End the registration; the first reason counts. Any thread may call it."""
        self._fail(reason)
        self._socket.close()

    def check(self) -> None:
        """
        Raise if the registration has ended.

        Raises:
            Lost: it has ended; the bootstrap has to start again.
        """
        with self._changed:
            if self._failure:
                raise Lost(self._failure)

    def take(self) -> str:
        """
        Return the next item as soon as it arrives. Items received before the end are still
        returned.

        Raises:
            Lost: the registration has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or len(self._buffer))
            text = self._buffer.take()
            if text is None:
                raise Lost(self._failure)
            return text

    def _read(self) -> None:
        try:
            while not self._failure:
                self._hear()
        except ConnectionClosed as closed:
            self._fail(goodbye(closed))
        finally:
            self._socket.close()

    def _hear(self) -> None:
        try:
            text = str(self._socket.recv(timeout=PONG_S if self._pinged_s else self._ping_s))
        except TimeoutError:
            text = ""
        if text and not self._is_pong(text):
            self._keep(text)
        if self._pinged_s is None and not text:
            self._socket.send(PING)
            self._pinged_s = time.monotonic()
        elif self._pinged_s is not None and time.monotonic() - self._pinged_s >= PONG_S:
            self._fail("the server does not answer")

    def _is_pong(self, text: str) -> bool:
        if not text.startswith('{"reply"'):
            return False
        self._pinged_s = None
        if json.loads(text).get("state") not in ("joining", "live"):
            self._fail("the server has forgotten the registration")
        return True

    def _keep(self, text: str) -> None:
        if text.startswith(('{"resource"', '{"bootstrapRoute')):
            self._fail(INVALID_STATE)
            return
        with self._changed:
            if not self._failure and not self._buffer.put(text):
                self._buffer.clear()
                self._failure = OVERFLOW
            self._changed.notify_all()

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()


def message(
    instance: str, service: str, resources: Mapping[str, Sequence[str]], password: str
) -> str:
    """Return a registration: version 1 for one resource, version 2 for several."""
    kinds = [{"resource": name, "subResources": list(subs)} for name, subs in resources.items()]
    fields: dict[str, Any] = {"instance": instance, "service": service}
    fields |= {"changeKind": kinds[0]} if len(kinds) == 1 else {"resources": kinds}
    if password:
        fields["password"] = password
    return json.dumps(fields, separators=(",", ":"))


def _as_lost(error: Exception) -> Lost:
    if isinstance(error, ConnectionClosed):
        return Lost(goodbye(error))
    return error if isinstance(error, Lost) else Lost("failed to register: no answer")
