"""Links follow what known proxies say, and nothing that a client says of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidings.http.asgi import headers_of
from tidings.http.request import base_url, host_of
from tidings.server.http_server import KnownProxies, networks
from tidings.server.processes import Problem

SAID = {
    "forwarded": "for=9.9.9.9;host=evil.example",
    "x-forwarded-host": "evil.example",
    "x-forwarded-proto": "https",
}


def base(
    proxies: tuple[str, ...],
    client: tuple[str, int] | None,
    *,
    every: bool = False,
    tls: bool = False,
) -> str:
    """Return the address of links that a client gets who sends `SAID`."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    given = {"host": "feed.example", **SAID}
    scope = {
        "type": "http",
        "scheme": "https" if tls else "http",
        "client": client,
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    known = KnownProxies(app, networks(proxies), every=every)
    asyncio.run(known(scope, None, None))  # type: ignore[arg-type]
    return base_url(headers_of(seen[0]), "")


@pytest.mark.parametrize(
    ("proxies", "client"),
    [
        ((), ("127.0.0.1", 1)),
        ((), None),
        (("10.0.0.0/8",), ("192.168.0.1", 1)),
        (("10.0.0.0/8",), ("::1", 1)),
        (("10.0.0.0/8",), None),
    ],
)
def test_a_client_does_not_choose_its_links(
    proxies: tuple[str, ...], client: tuple[str, int] | None
) -> None:
    """This includes a client on the loopback interface, which may be any process."""
    assert base(proxies, client) == "http://feed.example"
    assert base(proxies, client, tls=True) == "https://feed.example"


@pytest.mark.parametrize("client", ["10.1.2.3", "::ffff:10.1.2.3"])
@pytest.mark.parametrize("proxy", ["10.1.2.3", "10.0.0.0/8", "10.1.2.9/24"])
def test_a_known_proxy_is_believed(proxy: str, client: str) -> None:
    """By its address, or that of its network; on an IPv6 socket an IPv4 client has another form."""
    assert base((proxy,), (client, 1)) == "https://evil.example"
    assert base(("::ffff:10.0.0.0/104",), ("::ffff:10.1.2.3", 1)) == "https://evil.example"
    assert base(("11.0.0.0/8",), (client, 1)) == "http://feed.example"


def test_a_proxy_at_a_unix_socket_is_believed() -> None:
    """Nothing else connects there."""
    assert base((), None, every=True) == "https://evil.example"


def test_what_is_no_address_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(Problem, match="--proxy: 'nginx' does not appear to be"):
        networks(["nginx"])


def test_of_several_proxies_the_last_one_counts() -> None:
    """Earlier entries were sent by the client of the last proxy."""
    forwarded = "host=evil.example, for=1.2.3.4;host=feed.example;proto=https"
    assert host_of({"forwarded": forwarded}) == "feed.example"
