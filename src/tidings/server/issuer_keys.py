"""Fetch the keys of a token issuer before a request needs them.

The fetch runs in a separate thread, outside of the event loop and of every transaction. All
requests with a token that names an unknown key await the same fetch; others do not wait. `Tokens`
limits how often tokens with unknown keys cause a fetch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import jwt  # noqa: F401 (imported early: the import takes 100 ms, too long for the event loop)

from tidings.core.auth.guard import Credential, credential_from

if TYPE_CHECKING:
    from tidings.http.outbound.credentials import Tokens

log = logging.getLogger(__name__)
FETCH_S = 7.0  # the longest wait of a request, for a connection and two answers of the issuer
_START = "eyJ"  # prefix of every token


class IssuerKeys:
    """A fetcher of the keys that *tokens* needs."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._fetching: asyncio.Task[None] | None = None
        tokens.fetches = False

    async def prepare(self, authorization: str | None) -> None:
        """Return when the token in the header can be verified, or the fetch of the keys has ended.

        The wait for a fetch ends after `FETCH_S`.
        """
        if authorization:
            await self._prepare(credential_from(authorization))

    async def prepare_message(self, text: str) -> None:
        """Prepare the token that a WebSocket message has as its password; see `prepare`."""
        if _START not in text:
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        password = message.get("password") if isinstance(message, dict) else None
        if isinstance(password, str):
            await self._prepare(Credential(password))

    async def _prepare(self, given: Credential | None) -> None:
        if given is None or not self._tokens.knows(given):
            return
        if self._fetching is None and self._tokens.needs(given.secret):
            self._fetching = asyncio.ensure_future(self._fetch())
        if self._fetching is not None and self._tokens.must_wait(given.secret):
            await asyncio.wait({self._fetching}, timeout=FETCH_S)

    async def _fetch(self) -> None:
        """Fetch the keys in a daemon thread.

        So an issuer that never ends its answer does not delay the stop of the server.
        """
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def fetch() -> None:
            try:
                self._tokens.fetch()
            finally:
                with suppress(RuntimeError):  # the event loop is closed
                    loop.call_soon_threadsafe(done.set)

        try:
            Thread(target=fetch, name="issuer-keys", daemon=True).start()
            await done.wait()
        except RuntimeError as error:  # no thread is available; the next request tries again
            log.warning("cannot start a thread to fetch the keys of the issuer: %s", error)
        finally:
            self._fetching = None
