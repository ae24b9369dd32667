"""Who may come to the public port at all: no page of a stranger's, and no name that is not ours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidings.core.auth.origins import check_host, check_page
from tidings.http.asgi import Message, headers_of

KNOWN_MAX = 64  # a server has some names and ports, a stranger could send any address


@dataclass(frozen=True, slots=True)
class Visitors:
    """
    The names *hosts* under which we answer, and the *origins* whose pages may ask.

    A stage's pages are told by CORS headers what they may read. Here a page is refused at the
    door: on the machine of whoever visits it, a feed may be open that is nobody else's.
    """

    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    _known: set[str] = field(default_factory=set)  # what was asked for before, and may be

    def check(self, scope: Message) -> dict[str, str]:
        """
        The headers of the request.

        Raises:
            UnknownHost, ForeignOrigin: see `auth.origins`.
        """
        headers = headers_of(scope)
        host = headers.get("host", "")
        if host not in self._known:
            check_host(headers, self.hosts)
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)
        if scope.get("method") != "OPTIONS":  # a browser's question is answered, not refused
            check_page(headers, self.origins)
        return headers
