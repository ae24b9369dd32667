"""AWS Signature Version 4 and persistent connections, for frequent requests without botocore.

A signature by botocore takes 110 us. Here the parts that are equal for all requests of one second
are computed once, so that a signature takes 15 us. A test compares the signatures with botocore's.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from botocore.credentials import ReadOnlyCredentials


_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class _Moment:
    """The parts of a signed request that all requests with the same headers share for one second.

    *head* has the HTTP headers before the signature. *canonical* is the part of the canonical
    request between the path and the hash of the body. *scope* is the part of the string to sign
    before the hash of the canonical request. *key* is the signing key.
    """

    head: str
    canonical: str
    scope: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """A signer of requests to *service* at *host* (with the port unless it is the default)."""

    host: str
    region: str
    service: str

    def head(
        self,
        credentials: ReadOnlyCredentials,
        method: str,
        path: str,
        body: bytes,
        headers: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        """Return the HTTP head of a request with *body*, signed for the current time.

        *path* must be absolute and escaped, without dot segments, double slashes and a query.
        *headers* are added and signed; their names must be in lower case.
        """
        moment = _moment(self, credentials, tuple(headers), int(time.time()))
        canonical = (
            f"{method}\n{quote(path, safe='/~')}\n{moment.canonical}"
            f"{hashlib.sha256(body).hexdigest()}"
        )
        signed = moment.scope + hashlib.sha256(canonical.encode()).hexdigest()
        signature = hmac.digest(moment.key, signed.encode(), "sha256").hex()
        return (
            f"{method} {path} HTTP/1.1\r\n{moment.head}{signature}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode()


@lru_cache(maxsize=8)  # a process has few combinations of headers and credentials at a time
def _moment(
    signer: Signer, credentials: ReadOnlyCredentials, added: tuple[tuple[str, str], ...], now_s: int
) -> _Moment:
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    day = at[:8]
    scope = f"{day}/{signer.region}/{signer.service}/aws4_request"
    headers = {"host": signer.host, "x-amz-date": at, **dict(added)}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return _Moment(
        f"{sent}authorization: {_ALGORITHM}"
        f" Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature=",
        f"\n{listed}\n{names}\n",
        f"{_ALGORITHM}\n{at}\n{scope}\n",
        _key(str(credentials.secret_key), day, signer.region, signer.service),
    )


@lru_cache(maxsize=8)
def _key(secret: str, *scope: str) -> bytes:
    """Return the signing key for *scope*: a day, a Region and a service."""
    key = f"AWS4{secret}".encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


# A connection that was idle for longer is not used. The server may have closed it while Lambda had
# frozen this process.
_IDLE_S_MAX = 20.0


@dataclass(slots=True, eq=False)  # so that a connection can be a key of a mapping
class PersistentConnection:
    """A persistent connection. *used_s* is the time of its last answer by `time.monotonic`."""

    socket: socket.socket
    used_s: float


Kept = TypeVar("Kept", bound=PersistentConnection)


class IdleConnections(Generic[Kept]):
    """A pool of idle connections; several threads may use it concurrently."""

    def __init__(self) -> None:
        self._idle: list[Kept] = []

    def take(self) -> Kept | None:
        """Return the connection that was used last; None if all were idle for too long.

        Connections that were idle for too long are closed.
        """
        now_s = time.monotonic()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread has taken the last connection
                return None
            if now_s - connection.used_s <= _IDLE_S_MAX:
                return connection
            connection.socket.close()
        return None

    def keep(self, connection: Kept) -> None:
        self._idle.append(connection)  # `append` and `pop` of a list are atomic
