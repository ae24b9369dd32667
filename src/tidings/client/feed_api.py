"""Requests to a feed over HTTP: the connection, its errors, and the answers."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from tidings.client.address import NEW, base_url, feed_url
from tidings.client.errors import WrongAnswer, WrongUrl
from tidings.client.proxies import proxy_of, unreachable
from tidings.client.retries import Closing, error_of_answer
from tidings.core.model.operations import decode

if TYPE_CHECKING:
    from tidings.http.wire import Declared

CONNECT_S = 10.0
ANSWER_S = 40.0  # longer than the 30 s within which API Gateway always answers
NDJSON = "application/x-ndjson"

Answer = dict[str, Any]
Object = dict[str, Any]


class _Fields(dict[str, Any]):
    """An answer. A missing field raises `WrongAnswer`, because another program has answered."""

    def __missing__(self, name: str) -> Any:
        raise WrongAnswer


@cache
def ssl_context() -> ssl.SSLContext:
    """Return httpx's default context, created once, because reading certificates takes 30 ms."""
    return httpx.create_ssl_context()


def basic(password: str) -> dict[str, str]:
    """Return the HTTP Basic header. The user is empty, because the server ignores it.

    Without a password, return {}.
    """
    if not password:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f':{password}'.encode()).decode()}"}


def connecting(url: str) -> dict[str, Any]:
    """Return the arguments of httpx to connect to *url*, directly or through a proxy.

    Raises:
        WrongProxy: the environment names a proxy that cannot be used.
    """
    proxy = proxy_of(url)
    return {"verify": ssl_context(), "proxy": proxy and proxy.url, "trust_env": False}


def open_client(url: str, password: str, timeout_s: float | None = None) -> httpx.Client:
    """Return a client that keeps its connection to *url* open. The caller must close it.

    *timeout_s* is the maximum time of an answer, `ANSWER_S` by default.
    """
    answer_s = ANSWER_S if timeout_s is None else timeout_s
    return httpx.Client(
        headers=basic(password),
        timeout=httpx.Timeout(answer_s, connect=min(answer_s, CONNECT_S)),
        **connecting(url),
    )


@contextmanager
def translate_errors(url: str, *, silence: str = "") -> Iterator[None]:
    """Translate the errors of a request to *url*; *silence* is the message for a read timeout.

    Raises:
        WrongUrl: *url* cannot be used.
        Unreachable: the server did not answer; the request may have been handled.
    """
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except httpx.HTTPError as error:
        reason = silence if isinstance(error, httpx.ReadTimeout) else ""
        raise unreachable(url, reason or str(error) or type(error).__name__) from None


class FeedApi(Closing):
    """A connection for requests to one feed. Close it, or use `with`. Threads may share it.

    *timeout_s* is the maximum time of an answer, `ANSWER_S` by default.
    """

    def __init__(
        self, url: str, feed: str = "main", *, password: str = "", timeout_s: float | None = None
    ) -> None:
        self._root, self._url = base_url(url), feed_url(url, feed)
        self._client = open_client(self._url, password, timeout_s)

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return its answer.

        *path* is relative to the feed, or to the deployment if it begins with a slash.

        Raises:
            AccessDenied, FellOff, Refused: the server gave a final answer.
            Lost: no answer of a feed arrived; the request may have been handled.
        """
        sent = {"json": body, "params": query or {}, "headers": headers}
        return _object(self.request(method, path, **sent))

    def call(
        self,
        route: Declared,
        names: Mapping[str, str],
        given: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer of *route*, for the *names* in its path and the *given* fields."""
        quoted = {name: quote(value, safe="") for name, value in names.items()}
        path = route.paths[0].removeprefix("/feeds/{feed}/").format_map(quoted)
        return self.ask(route.method, path, **route.sent(given), headers=headers)

    def send(self, path: str, lines: bytes, *, query: Mapping[str, str]) -> Answer:
        """POST *lines* of JSON and return the answer. See `ask`."""
        headers = {"content-type": NDJSON}
        answer = self.request("POST", path, content=lines, params=query, headers=headers)
        return _object(answer)

    def lines(self, path: str, *, query: Mapping[str, str]) -> list[str]:
        """Return the lines of JSON that answer a GET. See `ask`."""
        return self.request("GET", path, params=query).text.rstrip("\n").split("\n")

    def request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        """Return the successful answer to a request. *sent* are arguments of httpx. See `ask`."""
        target = f"{self._root}{path}" if path.startswith("/") else f"{self._url}/{path}"
        with translate_errors(self._url):
            answer = self._client.request(method, target, **sent)
        if not answer.is_success:
            raise error_of_answer(answer)
        return answer


def _object(answer: httpx.Response) -> Answer:
    try:
        content = decode(answer.content.decode())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise WrongAnswer
    return _Fields(content)


class NamedConsumers(FeedApi):
    """Requests about the named consumers of one feed, and about its log."""

    def all(self) -> list[Answer]:
        return list(self.ask("GET", "consumers")["consumers"])

    def show(self, name: str) -> Answer:
        return self.ask("GET", _path(name))

    def register(self, name: str, wanted: Mapping[str, Any], *, only_new: bool = False) -> Answer:
        """Create the consumer *name*, or change its filter; return it.

        With *only_new*, the feed refuses an existing name (`Refused`, `consumer_exists`). Older
        servers ignore *only_new*.
        """
        headers = NEW if only_new else None
        return self.ask("PUT", _path(name), body=wanted, headers=headers)

    def delete(self, name: str, why: Mapping[str, str]) -> Answer:
        return self.ask("DELETE", _path(name), query=why)

    def act(self, name: str, action: str, body: Mapping[str, Any]) -> Answer:
        """Send *action*, one of the actions of PROTOCOL 14, and return the answer."""
        return self.ask("POST", _path(name, action), body=body)

    def parked(self, name: str) -> list[Answer]:
        return list(self.ask("GET", _path(name, "parked"))["parked"])

    def notes(self, name: str) -> list[Answer]:
        return list(self.ask("GET", _path(name, "notes"))["notes"])

    def log(self, query: Mapping[str, str] | None = None) -> Answer:
        """Return the oldest and latest ids of the log, or the operations that *query* selects."""
        return self.ask("GET", "log", query=query)


class Erasures(FeedApi):
    """Requests for erasures of objects, and their reports (PROTOCOL 22)."""

    def erase(
        self,
        type: str,
        id: str,
        reason: str,
        *,
        parents: bool = False,
        before: str = "",
        key: str = "",
    ) -> Answer:
        """Request the erasure of the object *id* of *type*, and return its report.

        With *parents*, `TYPE/ID` is also removed from the parents of other objects. If *before* is
        an event id, only operations before it are erased. After `Lost`, repeat the call with the
        same Idempotency-Key *key*, to request the erasure once.

        Raises:
            AccessDenied, Refused: the server gave a final answer.
            Lost: no answer arrived; the erasure may have been requested.
        """
        body: dict[str, Any] = {"type": type, "id": id, "reason": reason, "parents": parents}
        if before:
            body["before"] = before
        headers = {"Idempotency-Key": key} if key else {}
        return _object(self.request("POST", "erasures", json=body, headers=headers))

    def all(self) -> list[Answer]:
        """Return all erasures, the oldest first, without their locations."""
        found: list[Answer] = []
        query: dict[str, str] = {}
        while True:
            answer = self.ask("GET", "erasures", query=query)
            found += answer["erasures"]
            if answer["next"] is None:
                return found
            query = {"after": answer["next"]}

    def show(self, erasure_id: str) -> Answer:
        """Return the report of one erasure."""
        return self.ask("GET", f"erasures/{quote(erasure_id, safe='')}")


def _path(name: str, below: str = "") -> str:
    return f"consumers/{quote(name, safe='')}" + (f"/{below}" if below else "")


class Objects(FeedApi):
    """A connection to read the objects of one feed. Close it, or use `with`."""

    def one(self, kind: str, name: str) -> Object | None:
        """Return the object *name* of the type *kind*; None if it does not exist.

        Raises:
            Lost: the server did not answer.
            AccessDenied, Refused: the server gave a final answer.
        """
        objects, _ = self._page("objects", {"type": kind, "id": name})
        return objects[0] if objects else None

    def all(self, kind: str = "") -> Iterator[Object]:
        """Yield the objects of the type *kind*, or all objects. Raise the same errors as `one`."""
        return self.below("objects", {"type": kind} if kind else {})

    def below(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Yield the objects of the page at *path* and of all later pages; raise like `one`."""
        while True:
            objects, after = self._page(path, query)
            yield from objects
            if after is None:
                return
            query["after"] = after

    def _page(self, path: str, query: Mapping[str, str]) -> tuple[list[Object], str | None]:
        """Return the objects of one page, and the value of `after` for the next page, if any."""
        answer = self.ask("GET", path, query=query)
        if "objects" not in answer or "next" not in answer:
            raise WrongAnswer
        return answer["objects"], answer["next"]
