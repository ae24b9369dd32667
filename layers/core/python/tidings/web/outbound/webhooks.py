"""
Asking webhooks: all at once, each at an address that was looked at before it is called.

A name is resolved once and the connection goes to what it resolved to, so that nothing can
point somewhere else in between. Redirects are not followed, for the same reason.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urlsplit

from tidings.core import limits
from tidings.core.changeagent.webhooks import Hook, Verdict, may_call

_PORTS = {"http": 80, "https": 443}
_LATE = Verdict(failure=f"WebHook did not answer within {limits.HOOK_S} seconds")


class Webhooks:
    """Implements `AskHooks`. *private* allows hooks on our own networks."""

    def __init__(self, *, private: bool, timeout_s: float = limits.HOOK_S) -> None:
        self._private, self._timeout_s = private, timeout_s

    def __call__(self, hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        threads = ThreadPoolExecutor(len(hooks), thread_name_prefix="hook")
        try:
            calls = [threads.submit(self._ask, hook, data.encode()) for hook in hooks]
            wait(calls, timeout=self._timeout_s)
            return [each.result() if each.done() else _LATE for each in calls]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, hook: Hook, body: bytes) -> Verdict:
        parts = urlsplit(hook.uri)
        try:
            address = self._address(parts)
            if address is None:
                return Verdict(failure="WebHook is at an address that may not be called")
            return Verdict(self._post(parts, address, hook, body))
        except TimeoutError:
            return _LATE
        except (OSError, HTTPException) as error:
            return Verdict(failure=f"WebHook could not be called: {type(error).__name__}")

    def _address(self, parts: SplitResult) -> str | None:
        """The first address of its host, if every one of them may be called."""
        resolved = socket.getaddrinfo(parts.hostname, _port(parts), type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in resolved]
        if all(may_call(address, private=self._private) for address in addresses):
            return addresses[0]
        return None

    def _post(self, parts: SplitResult, address: str, hook: Hook, body: bytes) -> int:
        connection = _Pinned(parts, address, self._timeout_s)
        headers = {"content-type": "application/json"}
        headers |= {name.lower(): value for name, value in hook.headers}
        path = parts.path or "/"
        try:
            target = f"{path}?{parts.query}" if parts.query else path
            connection.request("POST", target, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


class _Pinned(HTTPConnection):
    """A connection to one address, under the name it was looked up by."""

    def __init__(self, parts: SplitResult, address: str, timeout_s: float) -> None:
        super().__init__(parts.hostname or "", _port(parts), timeout=timeout_s)
        self._address, self._tls = address, parts.scheme == "https"

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
