"""The proxy between a client and a feed, and errors that name it, without its password."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tidings.client.errors import Unreachable, WrongProxy

# For each scheme of a feed, the variables that can name its proxy, such as HTTPS_PROXY. A WebSocket
# uses the proxy for HTTPS first, because others rarely allow the method CONNECT.
_VARIABLES = {
    "http": ("http", "all"),
    "https": ("https", "all"),
    "ws": ("https", "http", "all"),
    "wss": ("https", "all"),
}
_SCHEMES = ("http", "https", "socks5", "socks5h")
_PLAIN = re.compile("wrong.version.number|record.layer.failure|packet.length.too.long", re.I)
# A server that speaks only TLS answers with an alert of TLS, or ends the connection.
_TLS = re.compile(r"\\x15\\x03|disconnected without|valid HTTP response|reset by peer", re.I)


class Proxy(NamedTuple):
    """A proxy; its *url* may have a password, and *shown* has the variable instead."""

    url: str
    shown: str


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy that the environment names for *url*; None for a direct connection.

    Raises:
        WrongProxy: the value of the variable cannot be used.
    """
    feed, proxies = urlsplit(url), getproxies()
    variable = next((name for name in _VARIABLES[feed.scheme] if proxies.get(name)), None)
    if variable is None or proxy_bypass(feed.netloc):
        return None
    address, name = proxies[variable], f"{variable.upper()}_PROXY"
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _SCHEMES:
        allowed = ", ".join(f"{each}://HOST:PORT" for each in _SCHEMES)
        raise WrongProxy(f"{name} is not the address of a proxy: one of {allowed}")
    host_port = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    shown = f"the proxy {parts.scheme}://{host_port} ({name})"
    package = "python_socks" if feed.scheme.startswith("ws") else "socksio"
    if parts.scheme.startswith("socks") and find_spec(package) is None:
        rule = f"needs the package {package.replace('_', '-')}; install it, or use an HTTP proxy"
        raise WrongProxy(f"{shown} {rule}")
    user, _, _ = parts.netloc.rpartition("@")
    if user:
        host_port = f"{user}{'' if ':' in user else ':'}@{host_port}"
    return Proxy(f"{parts.scheme}://{host_port}", shown)


def unreachable(url: str, reason: str) -> Unreachable:
    """Return the error for a server that does not answer, with the likely cause and its proxy."""
    via, is_secure = through(url), url.startswith(("https:", "wss:"))
    if is_secure and _PLAIN.search(reason):
        reason = "it does not speak TLS; begin the address with http:// instead of https://"
    elif not is_secure and not via and _TLS.search(reason):
        rule = "begin the address with https:// instead of http://"
        reason = f"{reason.rstrip('.')}; if it speaks TLS, {rule}"
    return Unreachable(url, reason, via)


def through(url: str) -> str:
    """Return ` through the proxy ...` if there is a proxy for *url*, else ""."""
    proxy = proxy_of(url)
    return f" through {proxy.shown}" if proxy else ""
