"""A server controlled by a test, in place of a feed: for listeners."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from tests.compat.oplog.wire import PATIENCE_S
from tests.compat.triton.wire import item

ROUTE = {"resource": "vm", "subResources": ["nic"], "bootstrapRoute": "/vms"}
PONG = '{"reply":"pong","state":"live"}'


class Peer:
    """A listener as the server sees it."""

    def __init__(self, raw: ServerConnection) -> None:
        self._raw = raw
        self.said = json.loads(raw.recv(timeout=PATIENCE_S))

    def tell(self, *messages: object) -> None:
        for message in messages:
            self._raw.send(message if isinstance(message, str) else json.dumps(message))

    def publish(self, *names: str) -> None:
        self.tell(*({**item(name), "published": "1763000000000"} for name in names))

    def end(self) -> None:
        self._raw.close()

    def hear(self) -> str:
        return str(self._raw.recv(timeout=PATIENCE_S))

    def gone(self) -> bool:
        """Wait for the listener to leave."""
        while True:
            try:
                self._raw.recv(timeout=PATIENCE_S)
            except ConnectionClosed:
                return True


class Publisher:
    """Serves from `__enter__` on; `next` is the next listener that registers."""

    def __enter__(self) -> Publisher:
        self._peers: queue.SimpleQueue[Peer] = queue.SimpleQueue()
        self._over = threading.Event()
        self._server: Server = serve(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def next(self, **answer: Any) -> Peer:
        """Return the next peer and send it *answer*, the route of a registration by default."""
        peer = self._peers.get(timeout=PATIENCE_S)
        peer.tell(answer or ROUTE)
        return peer

    def _serve(self, raw: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._peers.put(Peer(raw))
            self._over.wait(PATIENCE_S)
