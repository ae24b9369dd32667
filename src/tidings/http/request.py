"""One HTTP request, whatever host received it."""

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
    """The body has not arrived yet: its host reads it, and asks the endpoint again."""


@dataclass(frozen=True, slots=True)
class Request:
    """
    *route* is the key of its route (`routes.HttpRoute.key`), *path* stands below the prefix of
    the deployment. Names of *headers* are in lower case; *query* has one value a name,
    *query_string* is the query as it was sent, and *parameters* are those that the route's path
    names. *body* is as it was sent, None while it has not arrived; an endpoint that needs it
    checks before that who asks. *is_charged*: the rate of a key was spent when it was asked first.
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
        """The feed that the path names, else the default one."""
        return self.parameters.get("feed", DEFAULT_FEED)

    @property
    def origin(self) -> str:
        """The page that asks, empty where none does."""
        return self.headers.get("origin", "")

    @property
    def credential(self) -> Credential | None:
        given = credential_from(self.headers.get("authorization"))
        return replace(given, is_charged=True) if given and self.is_charged else given

    @property
    def has_body(self) -> bool:
        """Return True if a body was sent, or is still to come."""
        return self.body is None or bool(self.body)

    def content(self) -> bytes:
        """
        Return the body, decompressed.

        Raises:
            BodyPending: it has not arrived.
            UnsupportedEncoding, InvalidEncoding, TooLarge: see `content_encoding`.
        """
        is_compressed = content_encoding.is_compressed(self.headers)
        if self.body is None:
            raise BodyPending
        return content_encoding.decompress(self.body) if is_compressed else self.body

    @property
    def media_type(self) -> str:
        """Of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """*body* is text in UTF-8; the host adds what every answer carries (`answers.respond`)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


Endpoint = Callable[[Request], Answer]
