"""Serve the routes by which operators control chained feeds (PROTOCOL 16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core.auth.guard import Role
from tidings.core.auth.passwords import check_password
from tidings.core.errors import InvalidRelay, NotChained, OutsideKey, Rejected, WrongPassword
from tidings.core.model.json_body import object_from
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.replication.admin import RelayControl
    from tidings.core.replication.source import Sources
    from tidings.http.request import Answer, Request

Document = dict[str, Any]

_BELOW = "/feeds/{feed}/relay"
_FORBIDDEN = 403


class RelayPasswords(Protocol):
    """The passwords that relays send to their upstreams."""

    def password(self, feed: str) -> str:
        """Return the password for the upstream of *feed*; "" if it is not set."""

    def keep(self, feed: str, password: str) -> None:
        """Store *password*. If *password* is "", no password is sent from then on."""


class ReplicaRouter:
    """The endpoint of the routes of chained feeds. It selects a method by the route key."""

    def __init__(
        self, control: RelayControl, upstreams: RelayPasswords, guard: Guard, sources: Sources
    ) -> None:
        self._control, self._upstreams = control, upstreams
        self._guard, self._sources = guard, sources
        self._routes: dict[str, Callable[[Request], Document]] = {
            "GET /relays": self._all,
            f"GET {_BELOW}": self._show,
            f"POST {_BELOW}/{{action}}": self._act,
            f"PUT {_BELOW}/password": self._keep,
        }

    def __call__(self, request: Request) -> Answer:
        return json_answer(200, self._routes[request.route](request))

    def _all(self, request: Request) -> Document:
        """Return the chained feeds that the credential may read."""
        credential = request.credential
        relays: list[dict[str, Any]] = []
        refused: set[int] = set()
        wrong: set[str] = set()  # the owners of passwords that were compared: a guess counts once
        for feed in self._control.feeds.all_keys():
            scope = feed if self._guard.knows(credential) else self._guard.scope(feed)
            try:
                if scope not in wrong:
                    NEEDS[request.route].admit(self._guard, feed, credential)
                    relays.append(self._control.summary(feed))
            except Rejected as error:
                refused.add(error.status)
                wrong.add(scope)
        if refused and not relays:
            # The error names no feed, because the credential may see none.
            if _FORBIDDEN in refused:
                raise OutsideKey("permits to read no whole feed of this host")
            self._guard.check_host(Role.READ, credential)
            raise WrongPassword("must be a password or a key of a feed", field="password")
        return {"relays": relays}

    def _show(self, request: Request) -> Document:
        return self._control.document(self._check(request))

    def _act(self, request: Request) -> Document:
        feed = self._check(request)
        action = request.parameters["action"]
        return self._control.act(feed, action, object_from(request.content(), InvalidRelay))

    def _keep(self, request: Request) -> Document:
        """Store the password for the upstream. An empty password is not sent."""
        feed = self._check(request)
        if feed not in self._sources:
            raise NotChained("is not chained: it has no upstream", field="feed", value=request.feed)
        password = _password(object_from(request.content(), InvalidRelay))
        self._upstreams.keep(feed, check_password(password) if password else "")
        return {"feed": request.feed, "password": "set" if password else "none"}

    def _check(self, request: Request) -> str:
        """Return the key of the feed, after a check of the credential."""
        feed = self._control.feeds.key(request.feed)
        NEEDS[request.route].admit(self._guard, feed, request.credential)
        return feed


def _password(fields: Mapping[str, Any]) -> str:
    """Return the password field; errors do not contain its value."""
    for name in sorted(fields.keys() - {"password"}):
        raise InvalidRelay("is not known here; the only field is password", field=name)
    password = fields.get("password")
    if not isinstance(password, str):
        raise InvalidRelay("must be a string", field="password")
    return password
