"""Host and origin checks of the public port: refuses foreign pages and unknown host names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tidings.core.auth.origins import check_host, check_page
from tidings.http.asgi import Message, headers_of

KNOWN_MAX = 64  # a server has few names and ports, but a client could send any host


@dataclass(frozen=True, slots=True)
class Visitors:
    """
    The names *hosts* of the server, and the *origins* that may access it from a browser.

    A stage controls pages by CORS headers on its answers. Here a request from a foreign page is
    refused before it is handled: an open feed may be meant for this machine alone.
    """

    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    _known: set[str] = field(default_factory=set)  # hosts that passed the check before

    def check(self, scope: Message) -> dict[str, str]:
        """
        Return the headers of the request.

        Raises:
            UnknownHost, ForeignOrigin: see `auth.origins`.
        """
        headers = headers_of(scope)
        host = headers.get("host", "")
        if host not in self._known:
            check_host(headers, self.hosts)
            if len(self._known) < KNOWN_MAX:
                self._known.add(host)
        if scope.get("method") != "OPTIONS":  # a CORS preflight is answered, not refused
            check_page(headers, self.origins)
        return headers
