"""
What a browser asks for a web page, and for which pages it may.

A browser reaches what its user reaches, a server on the same machine too, and sends the passwords
that it remembers, whichever page makes it ask. It says so: in `Origin` the page, in
`Sec-Fetch-Site` how near it is, in `Host` the name that it looked up. Other clients send neither
of the first two, and nothing changes for them.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidings.core.errors import Rejected, WrongContentType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ANY = "*"  # of origins: every page may read; to change something it has to be named
# Headers that a page of another origin may read beside those that browsers let every page read.
EXPOSED = ("allow", "last-event-id", "retry-after")
READING = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing
_UNKNOWN = "is not a name of this server; --allow-host adds one"
_LOCALHOST = "localhost"
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_EXPOSING = {"access-control-expose-headers": ", ".join(EXPOSED)}
# What a form sends to any server, without the question that a browser asks before other requests.
_OF_FORMS = ("", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


class UnknownHost(Rejected, code="unknown_host", status=421):
    """The request was meant for a server of another name."""


class ForeignOrigin(Rejected, code="foreign_origin", status=403):
    """A page of another origin may not have its browser ask this."""


def check_host(headers: Mapping[str, str], known: Collection[str]) -> None:
    """
    Return if the request was meant for us: its `Host` is an address, `localhost` or one of *known*.

    A page whose own name suddenly leads to our address (DNS rebinding) is none of them. It is
    always a name: who asks for an address has looked nothing up.

    Raises:
        UnknownHost: it was not.
    """
    given = headers.get("host")
    if given is None:  # no browser
        return
    name = _host_of(given)
    if name != _LOCALHOST and name not in known and not _is_address(name):
        raise UnknownHost(_UNKNOWN, field="Host", value=given)


def check_page(headers: Mapping[str, str], origins: Collection[str]) -> None:
    """
    Return if the page that asks, if any, may read: it is our own or one of *origins*.

    Raises:
        ForeignOrigin: it may not.
    """
    if ANY not in origins and not _may(headers, origins):
        origin = headers.get("origin")
        raise ForeignOrigin("is not one that may read here", field="Origin", value=origin)


def check_change(headers: Mapping[str, str], origins: Collection[str], *, has_body: bool) -> None:
    """
    Return if the page that asks, if any, may change something: it is our own or named in *origins*.

    Raises:
        ForeignOrigin: it may not.
        WrongContentType: a browser sends what a form of any page could have sent.
    """
    if not _may(headers, origins):
        origin = headers.get("origin") or headers.get("sec-fetch-site")
        raise ForeignOrigin(
            "is not one that may change anything here", field="Origin", value=origin
        )
    kind = headers.get("content-type", "")
    if has_body and _is_browser(headers) and kind.partition(";")[0].strip().lower() in _OF_FORMS:
        rule = "must not be one that a form can send, when a browser asks"
        raise WrongContentType(rule, field="Content-Type", value=kind)


def cors_headers(origin: str, origins: Collection[str]) -> dict[str, str]:
    """
    Whether a page from *origin* may read an answer, told to its browser.

    Where it depends on who asks, no cache may give one page's answer to another.
    """
    if ANY in origins:
        return {"access-control-allow-origin": ANY, **_EXPOSING}
    if origin in origins:
        return {"access-control-allow-origin": origin, **_EXPOSING, "vary": "Origin"}
    return {"vary": "Origin"}


def _may(headers: Mapping[str, str], origins: Collection[str]) -> bool:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None:
        return site != "cross-site"
    return origin in origins or site == "same-origin" or _is_own(origin, headers.get("host", ""))


def _is_browser(headers: Mapping[str, str]) -> bool:
    return "origin" in headers or "sec-fetch-site" in headers


def _is_own(origin: str, host: str) -> bool:
    """Whether the page comes from the server that it asks, whichever of us speaks TLS."""
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        port = _PORTS.get(page.scheme)
        same = page.hostname == own.hostname and page.hostname is not None
        return same and (page.port or port) == (own.port or port)
    except ValueError:  # a port that is none
        return False


def _host_of(given: str) -> str:
    """The name or address in a `Host`, without its port."""
    try:
        return (urlsplit(f"//{given}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
