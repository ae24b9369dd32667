"""
Listen to a change feed: register, read all objects, then receive changes.

While the bootstrap is read, items wait in a bounded buffer. If it overflows or the connection ends,
everything starts again, so that no change is missed permanently.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

from tidings.client.address import socket_url
from tidings.client.backoff import DELAY_S_MAX, Backoff
from tidings.client.closing import Closing
from tidings.client.errors import Lost
from tidings.client.listen import messages as signals
from tidings.client.listen.bootstrap import ObjectPages
from tidings.client.listen.buffers import Buffer, MemoryBuffer
from tidings.client.listen.messages import Ended, Fetch, Live, Object, RefusedRegistration, Signal
from tidings.client.listen.registration import Registration, message
from tidings.client.retry_policy import refusal

HEARTBEAT_S = 27.817  # far below the ten minutes after which idle connections are closed
MIN_TIMEOUT_S = 1.0  # a restarting server is back soon after
# Errors that no other server would answer differently. A key over its rate is retried.
_CODES = {"password": "wrong_password", "key": "wrong_key"}
_FINAL = ("password:", "feed:", "key: is", "key: was", "key: has")
_log = logging.getLogger("tidings.listener")


class Listener(Closing):
    """
    A registration of *service* for *resources* (sub-resources by resource) that is renewed.

    Iterating yields `Bootstrap` for each resource, `Object` for each object that *fetch* reads from
    its route, `Live`, then `Item`s, and `Ended` before each new registration. *fetch* receives a
    `Bootstrap`. By default it reads routes of the feed and ignores those of other services.
    *retries* limits the consecutive failed attempts; None is unlimited. Close it, or use `with`.

    Raises:
        ValueError: *resources* is empty, or the delays are invalid.
        WrongUrl: *url* or *ws_url* is not a valid address.
        BackoffFailed, AccessDenied, Refused: while iterating: it does not retry any more.
    """

    def __init__(
        self,
        url: str,
        *,
        instance: str,
        service: str,
        resources: Mapping[str, Sequence[str]],
        feed: str = "main",
        password: str = "",
        ws_url: str | None = None,
        fetch: Fetch | None = None,
        buffer: Buffer | None = None,
        min_timeout_s: float = MIN_TIMEOUT_S,
        max_timeout_s: float = DELAY_S_MAX,
        retries: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        if not resources:
            raise ValueError("resources must name at least one")
        query = urlencode({"changefeed": feed, "version": 1 if len(resources) == 1 else 2})
        address = socket_url(url, ws_url)
        self._address = f"{address}{'&' if '?' in address else '?'}{query}"
        self._message = message(instance, service, resources, password)
        self._fetch = fetch or ObjectPages(url, password)
        self._buffer = MemoryBuffer() if buffer is None else buffer
        self._delays = Backoff(min_timeout_s, max_timeout_s, retries)
        self._heartbeat_s = heartbeat_s
        self._closed = threading.Event()
        self._current: Registration | None = None

    def close(self) -> None:
        """Close the connection, end the iteration and do not reconnect. Any thread may call it."""
        self._closed.set()
        if self._current is not None:
            self._current.close("closed")

    def __iter__(self) -> Iterator[Signal]:
        while not self._closed.is_set():
            try:
                yield from self._registered()
            except Lost as lost:
                if self._closed.is_set():
                    return
                ended = self._ended(lost)
                yield ended
                self._closed.wait(ended.delay_s)

    def _ended(self, lost: Lost) -> Ended:
        refused = isinstance(lost, RefusedRegistration)
        if refused and lost.reason.startswith(_FINAL):
            code = _CODES.get(lost.reason.partition(":")[0], "")
            raise refusal(lost.reason, code=code)
        delay_s = max(self._delays.next_s(), lost.after_s)
        _log.info("ended: %s; next registration in %.1f s", lost.reason, delay_s)
        return Ended(lost.reason, delay_s, refused)

    def _registered(self) -> Iterator[Signal]:
        """Yield the signals of one registration, until it ends by raising `Lost`."""
        _log.info("connecting to %s", self._address)
        registration = Registration(self._address, self._message, self._buffer, self._heartbeat_s)
        with registration:
            self._current = registration
            if self._closed.is_set():
                return
            self._delays.reset()
            yield from self._bootstrapped(registration)
            _log.info("live; %d items in the buffer", len(self._buffer))
            yield Live()
            while True:
                yield signals.item(registration.take())

    def _bootstrapped(self, registration: Registration) -> Iterator[Signal]:
        for route in registration.routes:
            yield route
            for fields in self._fetch(route):
                registration.check()
                yield Object(route.resource, fields)
        registration.check()
