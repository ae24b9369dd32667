"""Trusted proxies: accept forwarding headers only from configured addresses."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from tidings.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.http.asgi import App, Message, Receive, Send

Network = IPv4Network | IPv6Network
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-host", b"x-forwarded-proto"})


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """
    Return the networks or addresses named by *texts*.

    Raises:
        Problem: one of them is not an IP address or network.
    """
    try:
        return tuple(ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise Problem(f"--proxy: {error}") from None


class KnownProxies:
    """
    A filter of forwarding headers, with which untrusted clients could choose the links in answers.

    `Forwarded` and similar headers are kept if the request comes from one of *proxies*, or if
    *every* client is a proxy, as at a Unix socket. Requests are passed on to *app*.
    """

    def __init__(self, app: App, proxies: Sequence[Network], *, every: bool) -> None:
        self._app, self._proxies, self._every = app, proxies, every

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_known(scope):
            headers = [pair for pair in scope["headers"] if pair[0] not in _FORWARDED]
            if scope["scheme"] == "https":
                headers.append((b"x-forwarded-proto", b"https"))
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)

    def _is_known(self, scope: Message) -> bool:
        if self._every or not self._proxies:
            return self._every
        client = scope.get("client")
        address = ip_address(client[0]) if client else None
        return address is not None and any(address in each for each in self._proxies)
