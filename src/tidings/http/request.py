"""One HTTP request and its response, independent of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core.auth.guard import credential_from
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.http import content_encoding

if TYPE_CHECKING:
    from tidings.core.auth.guard import Credential


class BodyPending(Exception):
    """The body has not arrived yet: the host reads it and calls the endpoint again."""


@dataclass(frozen=True, slots=True)
class Request:
    """
    One HTTP request.

    *route* is the key of its route (`routes.HttpRoute.key`). *path* does not include the prefix of
    the deployment. *headers* have lower-case names. *query* has one value per name; *query_string*
    is the query as it was sent. *parameters* are those in the path. *body* is the body as it was
    sent, or None while it has not arrived; an endpoint checks the credential before it reads the
    body. *is_charged*: an earlier call already counted the request against the rate of the key.
    """

    method: str
    path: str
    route: str
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""
    query_string: str = ""
    is_charged: bool = False

    @property
    def feed(self) -> str:
        """Return the feed in the path, or the default feed."""
        return self.parameters.get("feed", DEFAULT_FEED)

    @property
    def origin(self) -> str:
        """Return the origin of the requesting page, or "" if there is none."""
        return self.headers.get("origin", "")

    @property
    def credential(self) -> Credential | None:
        given = credential_from(self.headers.get("authorization"))
        return replace(given, is_charged=True) if given and self.is_charged else given

    @property
    def has_body(self) -> bool:
        """Return True if the request has a body, or one that has not arrived yet."""
        return self.body is None or bool(self.body)

    def content(self) -> bytes:
        """
        Return the body, decompressed.

        Raises:
            BodyPending: the body has not arrived.
            UnsupportedEncoding, InvalidEncoding, TooLarge: see `content_encoding`.
        """
        is_compressed = content_encoding.is_compressed(self.headers)
        if self.body is None:
            raise BodyPending
        return content_encoding.decompress(self.body) if is_compressed else self.body

    @property
    def media_type(self) -> str:
        """Return the media type of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. *body* is UTF-8 text; `answers.respond` adds the common headers."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


Endpoint = Callable[[Request], Answer]
