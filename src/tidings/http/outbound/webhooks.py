"""Call webhooks in parallel, each at an address that is checked before the call.

A host name is resolved once, and the connection is made to the checked address, so that the name
cannot resolve to another address after the check. Redirects are not followed for the same reason.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urlsplit

from tidings.core import limits
from tidings.core.changeagent.webhooks import Hook, Outgoing, Verdict
from tidings.core.errors import Unavailable
from tidings.core.model.addresses import may_call
from tidings.http.outbound.final_response import FinalResponse

_PORTS = {"http": 80, "https": 443}
_LOOK_S = 0.25  # maximum delay until a cancellation is noticed


class Poster:
    """Implements `Post`. *private* allows webhooks on private networks.

    *observe* is called with the verdict of each call and its duration in seconds.
    """

    def __init__(
        self,
        *,
        private: bool,
        timeout_s: float,
        observe: Callable[[Verdict, float], object] = lambda *_: None,
    ) -> None:
        self._private, self._timeout_s, self._observe = private, timeout_s, observe
        self._closed = False

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        """Send *requests* in parallel and return the verdict of each.

        Raises:
            Unavailable: the poster was closed; the webhooks may have received the requests.
        """
        threads = ThreadPoolExecutor(len(requests), thread_name_prefix="hook")
        calls = [_Call(each, self._timeout_s, private=self._private) for each in requests]
        try:
            answers = [threads.submit(call.verdict) for call in calls]
            self._wait(answers)
            verdicts = [
                answer.result() if answer.done() else call.cut()
                for call, answer in zip(calls, answers, strict=True)
            ]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        if self._closed:
            raise Unavailable("the server stops, so it does not call webhooks any more")
        for call, verdict in zip(calls, verdicts, strict=True):
            self._observe(verdict, call.seconds)
        return [
            replace(verdict, took_ms=round(call.seconds * 1000))
            for call, verdict in zip(calls, verdicts, strict=True)
        ]

    def close(self) -> None:
        """Make no more calls, and cancel the calls in progress within `_LOOK_S`.

        This method is called from another thread.
        """
        self._closed = True

    def _wait(self, answers: Sequence[Future[Verdict]]) -> None:
        end_s, left = time.monotonic() + self._timeout_s, set(answers)
        while left and not self._closed and (left_s := end_s - time.monotonic()) > 0:
            left = wait(left, timeout=min(left_s, _LOOK_S)).not_done


class Webhooks:
    """Implements `WebhookVeto`. *private* allows webhooks on private networks."""

    def __init__(self, *, private: bool, timeout_s: float = limits.HOOK_S) -> None:
        self._post = Poster(private=private, timeout_s=timeout_s)

    def __call__(self, hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        kind = {"content-type": "application/json"}
        own = [{name.lower(): value for name, value in hook.headers} for hook in hooks]
        return self._post(
            [Outgoing(h.uri, kind | more, data) for h, more in zip(hooks, own, strict=True)]
        )


class _Call:
    """One request in its own thread. No request is sent after a call of `cut`."""

    def __init__(self, request: Outgoing, timeout_s: float, *, private: bool) -> None:
        self._request, self._timeout_s, self._private = request, timeout_s, private
        self._parts = urlsplit(request.url)
        self._began_s = time.monotonic()
        self._end_s = self._began_s + timeout_s
        self.seconds = timeout_s  # the duration of the call
        self._connection: _Pinned | None = None
        self._is_cut = False

    def verdict(self) -> Verdict:
        """Make the call."""
        try:
            return self._call()
        finally:
            self.seconds = time.monotonic() - self._began_s

    def _call(self) -> Verdict:
        try:
            addresses = self._addresses()
            if not addresses:
                return Verdict(failure="WebHook is at an address that may not be called")
            return Verdict(self._post(addresses))
        except TimeoutError:
            return self._late()
        except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid host name
            return Verdict(failure=f"WebHook could not be called: {type(error).__name__}")

    def cut(self) -> Verdict:
        """Cancel the call, which then stops or never begins. Another thread calls this method.

        This method sets the flag before it reads the connection, and `_post` sets the connection
        before it checks the flag. So the call is cancelled in any order of the two threads.
        """
        self._is_cut = True
        if self._connection is not None:
            self._connection.cut()
        return self._late()

    def _late(self) -> Verdict:
        return Verdict(failure=f"WebHook did not answer within {self._timeout_s:g} seconds")

    def _addresses(self) -> Sequence[str]:
        """Return the addresses of the host; none unless all of them may be called."""
        parts = self._parts
        resolved = socket.getaddrinfo(parts.hostname, _port(parts), type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in resolved))
        return addresses if all(may_call(each, private=self._private) for each in addresses) else ()

    def _post(self, addresses: Sequence[str]) -> int:
        parts, path = self._parts, self._parts.path or "/"
        connection = self._connection = _Pinned(parts, addresses, self._left_s)
        try:
            connection.connect()
            connection.limit(self._left_s())
            target = f"{path}?{parts.query}" if parts.query else path
            body = self._request.body.encode()
            connection.request("POST", target, body, dict(self._request.headers))
            return connection.getresponse().status
        finally:
            connection.close()

    def _left_s(self) -> float:
        """Return the remaining time in seconds."""
        left_s = self._end_s - time.monotonic()
        if self._is_cut or left_s <= 0:
            raise TimeoutError
        return left_s


class _Pinned(HTTPConnection):
    """A connection to one of *addresses* that uses the original host name in TLS and in `Host`.

    *left_s* returns the remaining time in seconds, or raises TimeoutError.
    """

    response_class = FinalResponse

    def __init__(
        self, parts: SplitResult, addresses: Sequence[str], left_s: Callable[[], float]
    ) -> None:
        super().__init__(parts.hostname or "", _port(parts), timeout=left_s())
        self.default_port = _PORTS[parts.scheme]  # `http.client` omits this port from `Host`
        self._addresses, self._left_s, self._tls = addresses, left_s, parts.scheme == "https"

    def connect(self) -> None:
        self.sock = self._open()
        self.limit(self._left_s())
        if self._tls:
            context = ssl.create_default_context()
            tls = self.sock = context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            tls.do_handshake()  # the handshake runs here, where `cut` can interrupt it

    def _open(self) -> socket.socket:
        """Connect to the first address that accepts a connection.

        Each address has an equal share of the remaining time, so that one that does not answer
        leaves time for the others.
        """
        for left, address in zip(range(len(self._addresses), 1, -1), self._addresses, strict=False):
            with suppress(OSError):
                return socket.create_connection((address, self.port), self._left_s() / left)
        return socket.create_connection((self._addresses[-1], self.port), self._left_s())

    def limit(self, timeout_s: float) -> None:
        """Set the timeout in seconds of each later socket operation."""
        self.sock.settimeout(timeout_s)

    def cut(self) -> None:
        """Abort the connection; the operation in progress in another thread raises an error."""
        sock: socket.socket | None = self.sock
        if sock is not None:
            with suppress(OSError):  # the connection has ended in the meantime
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # for TLS too, without close_notify


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
