"""Asking a feed for its named consumers: what workers and operators say (PROTOCOL 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from . import connection
from .address import feed_url
from .closing import Closing
from .errors import FellOff, Lost, Refused
from .refusals import error_of, retry_after_s

_FELL_OFF = "fell_off"
_BELOW_300 = range(200, 300)

Answer = dict[str, Any]


class NamedConsumers(Closing):
    """A connection to ask one feed. Close it, or use `with`. Any thread may ask."""

    def __init__(self, url: str, feed: str = "main", *, password: str = "") -> None:
        self._url = feed_url(url, feed)
        self._client = connection.opened(password)

    def close(self) -> None:
        self._client.close()

    def all(self) -> list[Answer]:
        found: list[Answer] = self.ask("GET", "consumers")["consumers"]
        return found

    def show(self, name: str) -> Answer:
        return self.ask("GET", _path(name))

    def register(self, name: str, wanted: Mapping[str, Any]) -> Answer:
        return self.ask("PUT", _path(name), body=wanted)

    def delete(self, name: str, why: Mapping[str, str]) -> Answer:
        return self.ask("DELETE", _path(name), query=why)

    def act(self, name: str, action: str, body: Mapping[str, Any]) -> Answer:
        """One of the actions of PROTOCOL 14."""
        return self.ask("POST", _path(name, action), body=body)

    def parked(self, name: str) -> list[Answer]:
        found: list[Answer] = self.ask("GET", _path(name, "parked"))["parked"]
        return found

    def notes(self, name: str) -> list[Answer]:
        found: list[Answer] = self.ask("GET", _path(name, "notes"))["notes"]
        return found

    def log(self, query: Mapping[str, str] | None = None) -> Answer:
        """The ends of the log, or the entries that *query* asks for."""
        return self.ask("GET", "log", query=query)

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """
        Raises:
            AccessDenied, FellOff, Refused: the answer is final, with its status and code.
            Lost: no answer, or none of a feed; nobody knows whether it was done.
        """
        with connection.translated(self._url):
            answer = self._client.request(
                method, f"{self._url}/{path}", json=body, params=query or {}
            )
        if answer.status_code not in _BELOW_300:
            raise _refusal(answer)
        return _read(answer)


def _path(name: str, below: str = "") -> str:
    return f"consumers/{quote(name, safe='')}" + (f"/{below}" if below else "")


def _refusal(answer: httpx.Response) -> Exception:
    error = error_of(answer.status_code, answer.content, after_s=retry_after_s(answer))
    if isinstance(error, Refused) and error.code == _FELL_OFF:
        return FellOff(error.message, status=error.status, code=error.code)
    return error


def _read(answer: httpx.Response) -> Answer:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Lost("the answer is not one of a feed; is the address right?")
    return found
