"""Describe the deployment: its status, its API and formats; serve the files of the console."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable
from tidings.core.maintenance.status import UNAVAILABLE, with_problem
from tidings.http.answers import json_answer
from tidings.http.request import Answer, UnknownPath, base_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidings.core.errors import StorageFailed
    from tidings.core.maintenance.status import Reporter
    from tidings.http.request import Request

LIVE_PAGE = "/console"
_PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Only headers can set these rules; a page cannot. The first rule forbids other sites to embed the
# page.
_PAGE_GUARDS = {
    "content-security-policy": "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
# Matches only a plain file name, so that a path cannot leave the folder.
_PAGE_NAME = re.compile(r"(/client)?/([A-Za-z0-9_-]+(?:\.[a-z]+)*\.(?:html|js|css|svg))")
# The folder of `@tidings/client`, which the page imports, next to the page's own folder.
CLIENT = "clients/javascript/src"
# The response of `/` to browsers if the host does not serve the console.
_NO_CONSOLE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Tidings</title>
<h1>Tidings</h1>
<p>This address serves the events of a feed to programs. It has no web page.</p>
<p>Read the feed with <code>tidings tail</code>, or with any client for Server-Sent Events.</p>
"""


@dataclass(frozen=True, slots=True)
class Status:
    """The endpoint that describes the deployment.

    OpenAPI names only the configured feeds: there may be thousands of others, and their names are
    not for every client. *storage* returns a problem of the storage, or None.
    """

    reporter: Reporter
    prefix: str
    storage: Callable[[], StorageFailed | None]

    def __call__(self, request: Request) -> Answer:
        if request.route == "GET /openapi.json":
            return _openapi(self.reporter.feed_names.configured, self.prefix)
        if request.route == "GET /asyncapi.json":
            from tidings.http import asyncapi  # rarely needed, as above

            return json_answer(200, asyncapi.document(base_url(request.headers, self.prefix)))
        if request.route == "GET /schemas/{format}":
            return _schema(request)
        try:
            report = self.reporter.report(request.feed)
        except Unavailable:
            report = self.reporter.unavailable(request.feed)
        problem = self.storage()
        if problem is not None:
            report = with_problem(report, problem)
        return json_answer(503 if report["status"] == UNAVAILABLE else 200, report)


@lru_cache(maxsize=1)  # building it takes 16 ms of CPU, and the feeds change only with a reload
def _openapi(feeds: frozenset[str], prefix: str) -> Answer:
    from tidings.http.openapi import document  # most processes never need this module

    return json_answer(200, document(feeds, prefix))


def _schema(request: Request) -> Answer:
    """Return the JSON Schema of the requested format."""
    from tidings.http.schemas import SCHEMA_TYPE, schema_document  # rarely needed, as in `Status`

    schema = schema_document(request.parameters["format"])
    if schema is None:
        raise UnknownPath("no such path", field="path", value=request.path)
    answer = json_answer(200, schema)
    return answer._replace(headers={**answer.headers, "content-type": SCHEMA_TYPE})


def live_page(folder: Path, path: str, prefix: str = "") -> Answer | None:
    """Return the response to a GET of *path*, or None if the file does not exist.

    *folder* has the files of the page. *prefix* is the path below which the deployment is served.
    """
    rest = path.removeprefix(LIVE_PAGE)
    if rest == path:
        return None
    if rest == "":
        # The page refers to its files by relative paths, so its address must end in a slash. If
        # there is no *prefix*, redirect to a relative address, because a proxy may have removed a
        # prefix that is unknown here.
        at = f"{prefix}{LIVE_PAGE}" if prefix else LIVE_PAGE.removeprefix("/")
        return Answer(307, {"location": f"{at}/"})
    match = _PAGE_NAME.fullmatch("/index.html" if rest == "/" else rest)
    file = (folder.parent / CLIENT if match[1] else folder) / match[2] if match else None
    if file is None or not file.is_file():
        return None
    headers = {
        "content-type": _PAGE_TYPES[file.suffix],
        "cache-control": "no-cache",
        **_PAGE_GUARDS,
    }
    return Answer(200, headers, file.read_text(encoding="utf-8"))


def front_page(prefix: str, query: str, *, has_console: bool) -> Answer:
    """Return the response of `/` to a browser: a redirect to the console if the host serves it.

    *query* is the query string, which the console understands. *prefix* is the path below which the
    deployment is served.
    """
    if has_console:
        at = f"{prefix}{LIVE_PAGE}/" if prefix else f"{LIVE_PAGE.removeprefix('/')}/"
        return Answer(307, {"location": f"{at}?{query}" if query else at, "vary": "accept"})
    headers = {
        "content-type": _PAGE_TYPES[".html"],
        "vary": "accept",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
    }
    return Answer(200, headers, _NO_CONSOLE)
