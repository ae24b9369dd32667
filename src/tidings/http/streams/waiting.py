"""Route long-running requests: event streams, lists of changes, pages for chained feeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidings.http import links
from tidings.http.asgi import App, Message, Receive, Send, headers_of, unbuffered

# The patterns are here, not in the apps, because a path is matched before an app is loaded.
CHANGES = re.compile(r"(?:/feeds/(?P<feed>[^/]+))?/changes(?:/(?P<id>[^/]*))?")
COPIED = re.compile(r"/feeds/(?P<feed>[^/]+)/(?P<what>pages|rows)")


@dataclass(frozen=True, slots=True)
class WaitingRouter:
    """A router of requests by their path below *prefix*; *streams* rejects unknown paths."""

    streams: App
    changes: App
    pages: App
    prefix: str = ""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self.prefix and scope["path"].startswith(f"{self.prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.prefix)}
        await self._app_of(scope)(scope, receive, unbuffered(send))

    def _app_of(self, scope: Message) -> App:
        if CHANGES.fullmatch(scope["path"]):
            return self.changes
        if COPIED.fullmatch(scope["path"]):
            return self.pages
        if links.wants_links(scope["method"], scope["path"], headers_of(scope)):
            return self.changes
        return self.streams


class LoadedWhenAsked:
    """An app that *build* imports and creates on the first request, which waits for it."""

    def __init__(self, build: Callable[[], App]) -> None:
        self._build = build
        self._app: App | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._app = self._build()
        await self._app(scope, receive, send)
