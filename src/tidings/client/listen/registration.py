"""One registration: a WebSocket whose items a thread of its own puts into the buffer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tidings.client.errors import Lost
from tidings.client.listen.buffers import Buffer
from tidings.client.listen.messages import INVALID_STATE, OVERFLOW, Bootstrap, bootstraps
from tidings.client.transport.websocket import OPTIONS, PING, failures, goodbye
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

ANSWER_S = 30.0  # for the answer to a registration, whose function may start cold
PONG_S = 10.0  # as any client of the feed waits for a pong


class Registration:
    """
    Registered at *url* from `__enter__` on, until `close`.

    *ping_s* is how often the server is asked whether it is still there.
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
        Raises:
            Lost: there is no connection, or the answer is not one to a registration.
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
        """End it; the first reason counts. Any thread may."""
        self._fail(reason)
        self._socket.close()

    def check(self) -> None:
        """
        Raises:
            Lost: it has ended, so that a bootstrap has to begin again.
        """
        with self._changed:
            if self._failure:
                raise Lost(self._failure)

    def take(self) -> str:
        """
        The next item, as soon as there is one; what came before the end is still told.

        Raises:
            Lost: it has ended.
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
    """A registration; of one resource in the first version, of more in the second."""
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
