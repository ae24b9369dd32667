"""
Persistent connections for frequent requests.

urllib3 and http.client take 200 us and more of CPU per request; a write, a read and a check of two
headers take 30. An answer must have a content-length, as those of DynamoDB have.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import EndpointConnectionError, HTTPClientError
from botocore.httpsession import get_cert_path

from tidings.aws.runtime.idle_connections import IdleConnections

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 65_536
_HEAD_BYTES_MAX = 65_536  # far above the size of DynamoDB's heads
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_CLOSES = b"\r\nconnection: close"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    closes: bool = False


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    used_s: float


@dataclass(slots=True)
class KeptConnections:
    """
    Connections to the host of *url*; each of several threads uses one of its own.

    Certificates are verified as by botocore.
    """

    url: str
    connect_s: float
    read_s: float
    _idle: IdleConnections[_Connection] = field(default_factory=IdleConnections)
    _trust: ssl.SSLContext | None = None

    def ask(self, head: bytes, body: bytes) -> Answer:
        """
        Send a request once.

        Raises:
            EndpointConnectionError: no connection could be made; nothing was sent.
            HTTPClientError: no answer arrived; the request may have been executed.
        """
        connection = self._idle.take() or self._connected()
        try:
            connection.socket.sendall(head + body)
            answer = _answer(connection.socket)
        except (OSError, ValueError) as error:
            connection.socket.close()
            raise HTTPClientError(error=error) from error
        if answer.closes:
            connection.socket.close()
        else:
            connection.used_s = time.monotonic()
            self._idle.keep(connection)
        return answer

    def _connected(self) -> _Connection:
        try:
            return _Connection(self._opened(), time.monotonic())
        except OSError as error:
            raise EndpointConnectionError(endpoint_url=self.url, error=error) from error

    def _opened(self) -> socket.socket:
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        made = socket.create_connection((host, port), self.connect_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if secure:
            if self._trust is None:
                self._trust = ssl.create_default_context(cafile=get_cert_path(True))
            made = self._trust.wrap_socket(made, server_hostname=host)
        made.settimeout(self.read_s)
        return made


def _answer(connection: socket.socket) -> Answer:
    """
    Read an answer.

    Raises:
        OSError: the connection broke, or the answer took too long.
        ValueError: the data is not a valid answer.
    """
    received = _received(connection)
    data = b""
    while (end := data.find(_END)) < 0 or data[9:10] == b"1":
        if end >= 0:
            data = data[end + len(_END) :]  # an informational answer: the final one follows
        elif len(data) > _HEAD_BYTES_MAX:
            raise ValueError("an answer's head does not end")
        else:
            data += next(received)
    head, body = data[:end].lower(), data[end + len(_END) :]
    at = head.find(_LENGTH)
    if not head.startswith(b"http/1.1 ") or at < 0:
        raise ValueError("an answer does not tell its length")
    length = int(head[at + len(_LENGTH) :].partition(b"\r\n")[0])
    while len(body) < length:
        body += next(received)
    return Answer(int(head[9:12]), body, _CLOSES in head)


def _received(connection: socket.socket) -> Iterator[bytes]:
    while part := connection.recv(_READ_BYTES):
        yield part
    raise ConnectionResetError("the connection ended before the answer did")
