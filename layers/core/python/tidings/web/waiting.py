"""The router of what waits for news: event streams, lists of changes, pages to copy."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.web import change_lists, links, replication_pages
from tidings.web.asgi import App, Message, Receive, Send, headers_of


@dataclass(frozen=True, slots=True)
class WaitingRouter:
    """Hands each request to the app of its path, below *prefix*; *streams* refuses the unknown."""

    streams: App
    changes: App
    pages: App
    prefix: str = ""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self.prefix and scope["path"].startswith(f"{self.prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.prefix)}
        await self._app_of(scope)(scope, receive, send)

    def _app_of(self, scope: Message) -> App:
        if change_lists.PATHS.fullmatch(scope["path"]):
            return self.changes
        if replication_pages.PATHS.fullmatch(scope["path"]):
            return self.pages
        if links.wants_links(scope["method"], scope["path"], headers_of(scope)):
            return self.changes
        return self.streams
