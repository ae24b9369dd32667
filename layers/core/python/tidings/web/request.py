"""One HTTP request, whatever host received it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core.auth.guard import credential_from
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from tidings.core.auth.guard import Credential


@dataclass(frozen=True, slots=True)
class Request:
    """
    *route* is the key of its route (`routes.HttpRoute.key`), *path* stands below the prefix of
    the deployment. Names of *headers* are in lower case; *query* has one value a name,
    *query_string* is the query as it was sent, and *parameters* are those that the route's path
    names.
    """

    method: str
    path: str
    route: str
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    query_string: str = ""

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
        return credential_from(self.headers.get("authorization"))

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
