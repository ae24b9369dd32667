"""Check the host and origin of browser requests, and build the CORS headers.

A browser can reach every server that its user can reach, including one on the same machine, and
sends its stored passwords with the requests of any page. The headers of a request show which page
sent it. `Origin` has the scheme, host and port of the page. `Sec-Fetch-Site` states the relation of
the page to this server. `Host` has the host name that the browser resolved. Clients other than
browsers send neither `Origin` nor `Sec-Fetch-Site` and are not affected.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidings.core.errors import Rejected, WrongContentType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ANY = "*"  # pages of all origins may read; to change something, a page needs a listed origin
# The response headers exposed to other origins, in addition to those that browsers always expose.
EXPOSED = ("allow", "last-event-id", "retry-after")
READING = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing
_UNKNOWN = "is not a known name of this server; --allow-host adds a name"
_LOCALHOST = "localhost"
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_EXPOSING = {"access-control-expose-headers": ", ".join(EXPOSED)}
# The content types that an HTML form can send to any server without a CORS preflight request.
_OF_FORMS = ("", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


class RepeatedHeader(Rejected, code="repeated_header", status=400):
    """A header that must be sent at most once is repeated, so that proxies may use another one."""


class UnknownHost(Rejected, code="unknown_host", status=421):
    """The request was meant for a server with another name."""


class ForeignOrigin(Rejected, code="foreign_origin", status=403):
    """A page of another origin may not make this request."""


def check_host(headers: Mapping[str, str], known: Collection[str]) -> None:
    """Check that `Host` is an IP address, `localhost` or one of the *known* names.

    This check prevents DNS rebinding, in which the host name of a foreign page resolves to the
    address of this server, so that `Host` has the foreign name. If `Host` is an IP address, no name
    was resolved.

    Raises:
        UnknownHost: `Host` is another name.
    """
    given = headers.get("host")
    if given is None:  # the client is not a browser
        return
    name = _host_of(given)
    if name != _LOCALHOST and name not in known and not _is_address(name):
        raise UnknownHost(_UNKNOWN, field="Host", value=given)


def check_page(headers: Mapping[str, str], origins: Collection[str]) -> None:
    """Check that the page that sent the request, if any, may read.

    Pages of this server and of *origins* may read.

    Raises:
        ForeignOrigin: the page may not read.
    """
    if ANY not in origins and not _may(headers, origins):
        origin = headers.get("origin")
        raise ForeignOrigin("is not an origin that may read here", field="Origin", value=origin)


def check_change(headers: Mapping[str, str], origins: Collection[str], *, has_body: bool) -> None:
    """Check that the page that sent the request, if any, may change something.

    Pages of this server and of *origins* may change something.

    Raises:
        ForeignOrigin: the page may not change anything.
        WrongContentType: a browser sent a body that an HTML form of any page could have sent.
    """
    if not _may(headers, origins):
        origin = headers.get("origin") or headers.get("sec-fetch-site")
        raise ForeignOrigin(
            "is not an origin that may change anything here", field="Origin", value=origin
        )
    kind = headers.get("content-type", "")
    is_browser = "origin" in headers or "sec-fetch-site" in headers
    if has_body and is_browser and kind.partition(";")[0].strip().lower() in _OF_FORMS:
        rule = "must not be a content type that an HTML form can send, if a browser sends it"
        raise WrongContentType(rule, field="Content-Type", value=kind)


def cors_headers(origin: str, origins: Collection[str]) -> dict[str, str]:
    """Return the headers by which browsers decide whether a page from *origin* may read a response.

    If the headers depend on the origin, `Vary` keeps caches from sending the response to pages of
    other origins.
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


def _is_own(origin: str, host: str) -> bool:
    """Return True if the page comes from this server, even if a proxy terminates TLS."""
    try:
        page = urlsplit(origin)
        own = urlsplit(f"//{host}")
        port = _PORTS.get(page.scheme)
        same = page.hostname == own.hostname and page.hostname is not None
        return same and (page.port or port) == (own.port or port)
    except ValueError:  # an invalid port
        return False


def _host_of(given: str) -> str:
    """Return the name or address in a `Host` header, without the port."""
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
