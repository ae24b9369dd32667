"""The address of a feed, and the part of the feed that a consumer subscribes to.

The functions `..._url` raise `WrongUrl` if the address has a wrong scheme or no host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict
from urllib.parse import quote, urlsplit, urlunsplit

from tidings.client.errors import WrongUrl
from tidings.core.model.filters import FIELDS

DEFAULT_URL = "http://127.0.0.1:8042"
DEFAULT_FEED = "main"
_SOCKET_SCHEMES = {"http": "ws", "https": "wss"}
# The switches of a stream or subscription, with the help of their options of `tidings tail`.
SWITCHES = {
    "leave": "Also report objects that leave the filter, if the feed stores removed parents.",
    "erasures": "Receive an erasure as `erase` with its reason, instead of as `delete`.",
}


class Switches(TypedDict, total=False):
    leave: bool
    erasures: bool


NEW = {"If-None-Match": "*"}  # the header of a request that only creates and changes nothing
_ARRAY = '["'  # a list that begins with this is JSON, not comma-separated


def operations_url(url: str, feed: str) -> str:
    """Return the URL for posting to *feed* and for reading it as Server-Sent Events."""
    return f"{feed_url(url, feed)}/ops"


def status_url(url: str, feed: str) -> str:
    """Return the URL of the status of *feed*; the status of the default feed is at the root."""
    return f"{base_url(url) if feed == DEFAULT_FEED else feed_url(url, feed)}/status"


def feed_url(url: str, feed: str) -> str:
    """Return the URL that precedes all paths of *feed*."""
    return f"{base_url(url)}/feeds/{quote(feed, safe='')}"


def base_url(url: str) -> str:
    """Return the URL that precedes the paths of all feeds."""
    scheme, host, path = _parts(url, ("http", "https"))
    return urlunsplit((scheme, host, path, "", ""))


def socket_url(url: str, ws_url: str | None = None) -> str:
    """Return the URL of the WebSocket: *ws_url* if given, else `/ws` on the host of *url*."""
    if ws_url:
        scheme, host, path = _parts(ws_url, ("ws", "wss"))
        return urlunsplit((scheme, host, path, urlsplit(ws_url).query, ""))
    scheme, host, path = _parts(url, ("http", "https"))
    return urlunsplit((_SOCKET_SCHEMES[scheme], host, f"{path}/ws", "", ""))


def _parts(url: str, schemes: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the scheme, host and path of *url*; a final `/ops`, as of oplog's clients, is cut."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise WrongUrl("an address must not contain a user or password, which would be logged")
    try:
        parts = urlsplit(url)
        port_is_number = parts.port is None or parts.port >= 0
    except ValueError:
        port_is_number = False
    if not port_is_number or parts.scheme not in schemes or not parts.hostname:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise WrongUrl(f"{url!r} is not an address; it must start with {wanted} and name a host")
    return parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix("/ops")


def from_text(text: str) -> list[str]:
    """Return the values of a list that a user has written.

    Spaces around the values are removed, unless the list is JSON.

    Raises:
        ValueError: the list begins like a JSON array but is not an array of strings.
    """
    if not text.startswith(_ARRAY):
        return [value.strip() for value in text.split(",") if value.strip()]
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError("must be an array of strings")
    return values


@dataclass(frozen=True, slots=True)
class Subscription:
    """The objects of *feed* with one of *types*, one of *parents* and one of *ids*.

    An empty list selects all objects. An id that ends with `*` selects every id with that prefix.
    With *leave*, an object that stops matching the filter is announced once more, as `leave`. With
    *erasures*, an erasure is an `erase` with its reason instead of a `delete`. The *password* never
    appears in the `repr`.
    """

    feed: str = "main"
    types: Sequence[str] = ()
    parents: Sequence[str] = ()
    leave: bool = False
    password: str = field(default="", repr=False)
    ids: Sequence[str] = ()
    erasures: bool = False

    def lists(self) -> dict[str, list[str]]:
        """Return the lists of the filter by request field, without empty lists."""
        return {name: list(values) for name in FIELDS if (values := getattr(self, name))}

    def switches(self) -> list[str]:
        """Return the names of the fields in `SWITCHES` that are True."""
        return [name for name in SWITCHES if getattr(self, name)]
