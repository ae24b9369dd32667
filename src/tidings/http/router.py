"""Find the route of a request, or the reason why its path or method is rejected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tidings.core.auth.origins import READING
from tidings.core.errors import Rejected
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.http.request import CHANGEAGENT, Answer, UnknownPath, WrongMethod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidings.http.request import Endpoint, Request
    from tidings.http.wire import HttpRoute

PATHS = re.compile(r"/(?:ops)?|/feeds/(?P<feed>[^/]+)/ops")
_STREAM = re.compile(r"/feeds/[^/]+/v1/stream/[^/]+")
# These two patterns match the paths of lists that wait for new entries. They are here, because a
# path is matched before the app of the lists is loaded.
CHANGES = re.compile(r"(?:/feeds/(?P<feed>[^/]+))?/changes(?:/(?P<id>[^/]*))?")
COPIED = re.compile(r"/feeds/(?P<feed>[^/]+)/(?P<what>pages|rows)")


class NoStreams(Rejected, code="no_streams", status=501):
    """This deployment has no durable streams."""


@dataclass(frozen=True, slots=True)
class Match:
    """A route, with the decoded parameters of a path."""

    route: HttpRoute
    parameters: dict[str, str]


class RouteTable:
    """A lookup of routes by method and path. With *answers_head*, HEAD uses the route of GET."""

    def __init__(self, routes: Sequence[HttpRoute], *, answers_head: bool = False) -> None:
        self._answers_head = answers_head
        self._plain = {(each.method, each.path): Match(each, {}) for each in routes}
        self._patterns = [(pattern(each.path), each) for each in routes]
        self.default = next((each for each in self._plain.values() if each.route.is_default), None)

    def match(self, method: str, path: str) -> Match | list[str]:
        """Return the route of *method* at *path*, which is not decoded.

        If no route matches, return the result of `methods`.
        """
        found = self._find(method, path)
        if method == "HEAD" and self._answers_head and isinstance(found, list) and "GET" in found:
            return self._find("GET", path)
        return found

    def methods(self, path: str) -> list[str]:
        """Return the methods of the routes at *path*, sorted; [] for an unknown path."""
        return sorted({each.method for regex, each in self._patterns if regex.fullmatch(path)})

    def _find(self, method: str, path: str) -> Match | list[str]:
        plain = self._plain.get((method, path))
        if plain is not None:
            return plain
        for regex, route in self._patterns:
            if route.method == method and (match := regex.fullmatch(path)):
                named = match.groupdict()
                return Match(route, {name: unquote(value) for name, value in named.items()})
        return self.methods(path)


def pattern(path: str) -> re.Pattern[str]:
    """Return a regular expression for *path* in which each parameter is a named group."""
    parts = re.split(r"\{(\w+)\}", path)
    texts = [
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)"
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(texts))


def by_path(below: Mapping[str, Callable[[], Endpoint]], other: Endpoint | None = None) -> Endpoint:
    """Return an endpoint that passes each request to the endpoint for its path in *below*.

    *below* maps the start of a path to a function that builds the endpoint; the first match counts.
    The module of an endpoint is loaded on first use, so that a Lambda function loads nothing for
    rare routes. Other requests are passed to *other*; without it, there must be none.
    """

    def answer(request: Request) -> Answer:
        path = request.route.partition(" ")[2]
        build = next((each for at, each in below.items() if path.startswith(at)), None)
        chosen = build() if build else other
        assert chosen is not None, path
        return chosen(request)

    return answer


def check_operations(method: str, path: str, wanted: str) -> str:
    """Return the feed of *path* if it is a path of operations and the method is *wanted*.

    Raises:
        UnknownPath, NoStreams: *path* is not the path of any route of a stage.
        WrongMethod: *path* is not a path of operations, or the method is not *wanted*.
    """
    if PATHS.fullmatch(path) and method == wanted:
        return feed_of(path)
    methods = _stage_routes().methods(path)
    if not methods:
        if _STREAM.fullmatch(path):
            raise NoStreams("only `tidings serve` has durable streams", field="path", value=path)
        raise UnknownPath("no such path", field="path", value=path)
    # Leave out the rejected method, because another address of the feed may serve it.
    raise WrongMethod(method, ", ".join([*(each for each in methods if each != method), "OPTIONS"]))


def without_slash(request: Request, prefix: str) -> Answer | None:
    """Return a redirect if *request* is for a path of changeagent with an added trailing slash.

    changeagent did the same. *prefix* is the path below which the deployment is served.
    """
    path = request.path.removesuffix("/")
    if path == request.path or not CHANGEAGENT.fullmatch(path) or not _stage_routes().methods(path):
        return None
    query = f"?{request.query_string}" if request.query_string else ""
    status = 301 if request.method in READING else 308  # 308 keeps method and body
    return Answer(status, {"location": f"{prefix}{path}{query}"})


def feed_of(path: str) -> str:
    """Return the feed in a path of operations, or the default feed."""
    match = PATHS.fullmatch(path)
    return (match and match["feed"]) or DEFAULT_FEED


@cache
def _stage_routes() -> RouteTable:
    """Return the routes of a stage. Load them on first use."""
    from tidings.http.routes import HTTP_ROUTES

    return RouteTable(HTTP_ROUTES)
