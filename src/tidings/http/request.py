"""One HTTP request and its response, independent of the host.

The body of a request may be compressed with gzip; its header `Content-Encoding` then says so.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidings.core import limits
from tidings.core.auth.guard import credential_from
from tidings.core.errors import Rejected, TooLarge
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from tidings.core.auth.guard import Credential

ACCEPTED_ENCODING = "gzip"
_GZIP = frozenset(("gzip", "x-gzip"))  # both names mean the same (RFC 9110, 8.4.1.3)
_IDENTITY = "identity"
_WINDOW = 31  # value of zlib's `wbits` that requires the header and trailer of gzip
# The size of the first piece of a member; each further piece is twice as large. `unused_data` is a
# copy of the rest of a piece, so all copies take linear time for any number of members.
_PIECE_BYTES = 256
_WEIGHT = re.compile(r";\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)", re.IGNORECASE)
LINKS = ("changes", "diagnostics", "cluster", "config", "health")
_FORWARDED_HOST = re.compile(r'(?:^|[;,\s])host="?([^";,\s]+)"?', re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+", re.ASCII)
# The paths of changeagent.
CHANGEAGENT = re.compile(
    r"(?:/feeds/[^/]+)?/(?:changes|cluster|config|diagnostics|health)(?:/.*)?", re.DOTALL
)
_EVENT_TYPES = ("text/event-stream", "application/x-ndjson")
_JSON_TYPE = "application/json"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Overloaded(Rejected, code="overloaded", status=503):
    """Too many bodies are being received at once."""


class UnsupportedEncoding(Rejected, code="unsupported_encoding", status=415):
    """The encoding of the body is not supported; the response names a supported encoding."""


class InvalidEncoding(Rejected, code="invalid_encoding", status=400):
    """The body does not match its encoding, or is truncated."""


class UnknownPath(Rejected, code="unknown_path", status=404):
    """No route has this path."""


class WrongMethod(Rejected, code="wrong_method", status=405):
    """The path does not allow the method; *allow* is the value of the header `Allow`."""

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"this path allows only {allow} here", field="method", value=method)
        self.allow = allow


class NotAcceptable(Rejected, code="not_acceptable", status=406):
    """The client accepts neither event streams nor NDJSON."""


def is_compressed(headers: Mapping[str, str]) -> bool:
    """Return True if the body of a request with *headers* is compressed.

    Raises:
        UnsupportedEncoding: the body is encoded more than once, or not with gzip.
    """
    given = headers.get("content-encoding")
    if given is None:
        return False
    names = [name for each in given.split(",") if (name := each.strip().lower()) != _IDENTITY]
    names = [name for name in names if name]
    if len(names) > 1 or not _GZIP.issuperset(names):
        raise UnsupportedEncoding("must be gzip or identity", field="Content-Encoding", value=given)
    return bool(names)


def decompress(body: bytes, most: int = limits.REQUEST_BYTES_MAX) -> bytes:
    """Decompress *body*, which consists of one or more gzip members.

    Raises:
        TooLarge: the decompressed body has more than *most* bytes, in which case the rest is not
            decompressed, or the body has too many bytes or members for its size.
        InvalidEncoding: the body is not gzip, or is truncated.
    """
    if len(body) > most + limits.GZIP_BYTES_MORE:
        raise TooLarge(f"a request holds at most {most} bytes, decompressed", field="body")
    parts: list[bytes] = []
    left, at = most, 0
    for _ in range(limits.GZIP_MEMBERS_MAX):
        member, size = zlib.decompressobj(_WINDOW), _PIECE_BYTES
        while not member.eof:
            piece = body[at : at + size]
            if not piece:
                raise InvalidEncoding("ends before the end of its gzip data", field="body")
            try:
                part = member.decompress(piece, left + 1)
            except zlib.error as error:
                raise InvalidEncoding(f"is not gzip: {error}", field="body") from None
            if len(part) > left:
                raise TooLarge(f"a request holds at most {most} bytes, decompressed", field="body")
            parts.append(part)
            left, at, size = left - len(part), at + len(piece), 2 * size
        at -= len(member.unused_data)
        if at == len(body):
            return b"".join(parts)
    rule = f"a request holds at most {limits.GZIP_MEMBERS_MAX} members of gzip"
    raise TooLarge(rule, field="body")


class BodyPending(Exception):
    """The body has not arrived yet. The host reads it and calls the endpoint again."""


class Request(NamedTuple):
    """One HTTP request.

    *route* is the key of its route (`routes.HttpRoute.key`). *path* does not include the prefix of
    the deployment. *headers* have lower-case names. *query* has one value per name; *query_string*
    is the query as it was sent. *parameters* are the parameters in the path. *body* is the body as
    it was sent, or None if it has not arrived yet: an endpoint checks the credential before it
    needs the body. *is_charged* is True if an earlier call counted the request against the rate of
    the key.
    """

    method: str
    path: str
    route: str
    headers: Mapping[str, str] = _NOTHING
    parameters: Mapping[str, str] = _NOTHING
    query: Mapping[str, str] = _NOTHING
    body: bytes | None = b""
    query_string: str = ""
    is_charged: bool = False

    @property
    def feed(self) -> str:
        """Return the feed in the path, or the default feed."""
        return self.parameters.get("feed", DEFAULT_FEED)

    @property
    def origin(self) -> str:
        """Return the origin of the web page that sent the request, or "" if it names none."""
        return self.headers.get("origin", "")

    @property
    def only_new(self) -> bool:
        """Return True if a PUT may only create, and must change nothing that exists."""
        return self.headers.get("if-none-match", "").strip() == "*"

    @property
    def credential(self) -> Credential | None:
        given = credential_from(self.headers.get("authorization"))
        if given is None or not (self.is_charged or self.body):
            return given
        return replace(given, is_charged=self.is_charged, size=len(self.body or b""))

    @property
    def has_body(self) -> bool:
        """Return True if the request has a body, or if a body may still arrive."""
        return self.body is None or bool(self.body)

    def is_within(self, bytes_max: int) -> bool:
        """Return False if the body may have more than *bytes_max* bytes when decompressed."""
        if self.body is None or len(self.body) > bytes_max:
            return self.body is None
        try:
            self.content(bytes_max)
        except TooLarge:
            return False
        except Rejected:
            pass  # the endpoint raises the same error
        return True

    def content(self, bytes_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """Return the body, decompressed. A compressed one may have at most *bytes_max* bytes.

        Raises:
            BodyPending: the body has not arrived.
            UnsupportedEncoding, InvalidEncoding, TooLarge: see `is_compressed` and `decompress`.
        """
        compressed = is_compressed(self.headers)
        if self.body is None:
            raise BodyPending
        return decompress(self.body, bytes_max) if compressed else self.body

    @property
    def media_type(self) -> str:
        """Return the media type of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Answer(NamedTuple):
    """A response. *body* is UTF-8 text; `answers.respond` adds the common headers."""

    status: int
    headers: Mapping[str, str] = _NOTHING
    body: str = ""


# An endpoint returns the response to a request. It raises only `BodyPending`, and errors that
# `answers.refusal` handles.
Endpoint = Callable[[Request], Answer]


# The functions below parse the address that the client used, and the media types that it accepts.


def quality(accept: str, media_type: str) -> float:
    """Return the weight of *media_type* in *accept*, by the most specific range; 0 if refused."""
    weights = _weights(accept)
    general = media_type.partition("/")[0] + "/*"
    return next((weights[each] for each in (media_type, general, "*/*") if each in weights), 0.0)


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return True if the client accepts a body in gzip, and does not prefer a plain body."""
    weights = _weights(headers.get("accept-encoding", ""))
    named = [weights[each] for each in _GZIP if each in weights]
    weight = max(named, default=weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get(_IDENTITY, 0.0)


def named_quality(accept: str, media_type: str) -> float:
    """Return the weight of *media_type* if *accept* names it, else 0."""
    return _weights(accept).get(media_type, 0.0)


def _weights(accept: str) -> dict[str, float]:
    """Return the weight of each media range or encoding.

    Parameters are ignored. If a name is repeated, its first weight counts. Members after
    `limits.LIST_MEMBERS_MAX` are ignored, because any client can send thousands.
    """
    weights: dict[str, float] = {}
    for part in accept.split(",", limits.LIST_MEMBERS_MAX)[: limits.LIST_MEMBERS_MAX]:
        name = part.partition(";")[0].strip().lower()
        weight = _WEIGHT.search(part)
        weights.setdefault(name, min(1.0, float(weight[1])) if weight else 1.0)
    return weights


def base_url(headers: Mapping[str, str], prefix: str) -> str:
    """Return the URL of *prefix* as the client addressed it; headers of proxies take precedence."""
    proto = headers.get("x-forwarded-proto", "http").partition(",")[0].strip()
    scheme = proto if proto in ("http", "https") else "http"
    return f"{scheme}://{host_of(headers)}{prefix}"


def host_of(headers: Mapping[str, str]) -> str:
    """Return the host that the client addressed; the header of the last proxy takes precedence."""
    forwarded = _FORWARDED_HOST.findall(headers.get("forwarded", ""))
    host = forwarded[-1] if forwarded else headers.get("x-forwarded-host", headers.get("host", ""))
    return host if _HOST.fullmatch(host) else "localhost"


def root_links(base: str) -> dict[str, str]:
    """Return the links of `GET /` for clients that accept JSON."""
    return {name: f"{base}/{name}" for name in LINKS}


def wants_links(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return True if the client explicitly prefers the JSON links to a stream of events."""
    if method != "GET" or path != "/":
        return False
    accept = headers.get("accept", "")
    return named_quality(accept, _JSON_TYPE) > named_quality(accept, _EVENT_TYPES[0])


def wants_page(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return True if the client is a browser that opens `/`.

    It names `text/html`, and nothing else that `/` can return. If it also accepts everything, it
    would otherwise receive an event stream, which a browser cannot show.
    """
    if method not in ("GET", "HEAD") or path != "/":
        return False
    accept = headers.get("accept", "")
    html = named_quality(accept, "text/html")
    named = max(named_quality(accept, each) for each in (_JSON_TYPE, *_EVENT_TYPES))
    return html > named and html >= quality(accept, _EVENT_TYPES[0])
