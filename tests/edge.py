"""A cache in front of a feed that keeps to CloudFront's documented rules, with its counts.

The rules, with their documentation (docs/adr/0055-one-address.md has the addresses):

- Only GET is cached, by the path, the query and the headers of the cache policy.
- A request equal to one in progress waits, and gets that answer, if it may be cached.
- `s-maxage`, else `max-age`, is how long; not at all with `no-store`, `no-cache` or `private`, and
  where neither is set as long as the policy says, here not at all. `Vary` is ignored.
- Errors are kept as long as the distribution says, here not at all.

An undocumented detail is implemented in the simplest way: there is one edge, and it forgets
nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

import httpx

from tidings.http import answers
from tidings.http.asgi import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.http.asgi import Message, Receive, Send

WINDOW_S_MAX = 20  # as in `infra/edge/viewer_request.js`
_ORIGIN_S = 60.0
_MAX_AGE = re.compile(r"(?:^|[,\s])(s-maxage|max-age)=(\d+)")
_FORBIDS = re.compile(r"no-store|no-cache|private")
_NOT_PASSED = {b"connection", b"host", b"keep-alive", b"transfer-encoding", b"upgrade"}
_NOT_ANSWERED = {"connection", "content-encoding", "content-length", "transfer-encoding"}

Key = tuple[str, ...]


def window(query: str, now_s: float) -> str:
    """Return the span of time of a request with this *query*. The request's wait outlasts it.

    A client that waited in vain asks again in a later one, so that it is not given the same answer
    once more.
    """
    first = parse_qs(query).get("block", ["0"])[0]
    wait_s = min(int(first), WINDOW_S_MAX) if re.fullmatch(r"\d{1,9}", first) else 0
    return str(int(now_s // wait_s)) if wait_s else "0"


@dataclass(frozen=True, slots=True)
class Answer:
    """*fresh_s*: for how long others may be given it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    fresh_s: int = 0


@dataclass(slots=True)
class Edge:
    """An ASGI app in front of *origin*, an address, from `__aenter__` on.

    *asked* counts the requests that the origin got, by their path.
    """

    origin: str
    key_headers: tuple[str, ...] = answers.CACHE_KEY
    windows: Callable[[str, float], str] = window
    asked: Counter[str] = field(default_factory=Counter)
    _client: httpx.AsyncClient | None = None
    _kept: dict[Key, tuple[float, Answer]] = field(default_factory=dict)
    _asking: dict[Key, asyncio.Future[Answer]] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        most = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(timeout=_ORIGIN_S, limits=most)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = await self._answer(scope, body)
        pairs = [(k.encode(), v.encode("latin-1")) for k, v in answer.headers.items()]
        pairs.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Message, body: bytes) -> Answer:
        is_shared = any(fnmatchcase(scope["path"], pattern) for pattern in answers.CACHED_PATHS)
        if scope["method"] != "GET" or not is_shared:
            return await self._ask(scope, body)
        key = self._key(scope)
        until_s, kept = self._kept.get(key, (0.0, None))
        if kept is not None and time.monotonic() < until_s:
            return kept
        if key in self._asking:
            answer = await asyncio.shield(self._asking[key])
            if answer.fresh_s:
                return answer
            return await self._ask(scope, body)
        asking = self._asking[key] = asyncio.ensure_future(self._ask(scope, body))
        try:
            answer = await asking
        finally:
            del self._asking[key]
        if answer.fresh_s:
            self._kept[key] = (time.monotonic() + answer.fresh_s, answer)
        return answer

    def _key(self, scope: Message) -> Key:
        headers, query = headers_of(scope), scope["query_string"].decode("latin-1")
        values = [headers.get(name.lower(), "") for name in self.key_headers]
        return (scope["path"], query, self.windows(query, time.time()), *values)

    async def _ask(self, scope: Message, body: bytes) -> Answer:
        """Pass the request on. The client of `httpx` unpacks what came packed."""
        assert self._client is not None
        self.asked[scope["path"]] += 1
        headers = [pair for pair in scope["headers"] if pair[0] not in _NOT_PASSED]
        url = httpx.URL(self.origin).copy_with(path=scope["path"], query=scope["query_string"])
        found = await self._client.request(scope["method"], url, headers=headers, content=body)
        kept = {k: v for k, v in found.headers.items() if k not in _NOT_ANSWERED}
        return Answer(found.status_code, kept, found.content, fresh_s(found))


def fresh_s(answer: httpx.Response) -> int:
    """For how long an answer may be given to others, as CloudFront reads its `Cache-Control`."""
    control = answer.headers.get("cache-control", "")
    if not answer.is_success or _FORBIDS.search(control):
        return 0
    said = {name: int(value) for name, value in _MAX_AGE.findall(control)}
    return said.get("s-maxage", said.get("max-age", 0))
