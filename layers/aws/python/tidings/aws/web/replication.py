"""The routes of chained feeds that operators ask (PROTOCOL 16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tidings.aws.gateway.http_events import routed_request
from tidings.aws.web.routes import NEEDS
from tidings.core.auth.passwords import check_password
from tidings.core.errors import InvalidRelay, NotChained, Rejected
from tidings.core.model.feeds import check_known
from tidings.core.model.json_body import object_from

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.ingest.ingest import Request
    from tidings.core.replication.admin import RelayControl
    from tidings.core.replication.source import Sources

Event = Mapping[str, Any]
Answer = tuple[int, dict[str, Any]]

_BELOW = "/feeds/{feed}/relay"


class Upstreams(Protocol):
    """Where the passwords for upstreams are kept."""

    def keep(self, feed: str, password: str) -> None: ...


class ReplicaRouter:
    """Answers one request, by the key of its route."""

    def __init__(
        self, control: RelayControl, upstreams: Upstreams, guard: Guard, sources: Sources
    ) -> None:
        self._control, self._upstreams = control, upstreams
        self._guard, self._sources = guard, sources
        self._routes: dict[str, Callable[[Event, Request], Answer]] = {
            "GET /relays": self._all,
            f"GET {_BELOW}": self._show,
            f"POST {_BELOW}/{{action}}": self._act,
            f"PUT {_BELOW}/password": self._keep,
        }

    def answer(self, event: Event) -> Answer:
        """
        Raises:
            TidingsError: see `http_events.refusal_of`.
        """
        return self._routes[event["routeKey"]](event, routed_request(event))

    def _all(self, event: Event, request: Request) -> Answer:
        """
        The feeds that may be read with what is shown.

        Raises:
            WrongPassword, NoPasswordSet, WrongKey, OutsideKey: there is none.
        """
        told: list[dict[str, Any]] = []
        refused: Rejected | None = None
        for feed in sorted(self._control.feeds):
            try:
                NEEDS[event["routeKey"]].admit(self._guard, feed, request.credential)
            except Rejected as error:
                if refused is None or error.status > refused.status:
                    refused = error  # a key says more to the one feed that knows it
                continue
            told.append(self._control.listed(feed))
        if refused is not None and not told:
            raise refused
        return 200, {"relays": told}

    def _show(self, event: Event, request: Request) -> Answer:
        self._check(event, request)
        return 200, self._control.told(request.feed)

    def _act(self, event: Event, request: Request) -> Answer:
        self._check(event, request)
        action = event["pathParameters"]["action"]
        return 200, self._control.act(request.feed, action, object_from(request.body, InvalidRelay))

    def _keep(self, event: Event, request: Request) -> Answer:
        """An empty password: none is sent any more."""
        self._check(event, request)
        if request.feed not in self._sources:
            raise NotChained("is not chained: it reads nobody", field="feed", value=request.feed)
        password = _password(object_from(request.body, InvalidRelay))
        self._upstreams.keep(request.feed, check_password(password) if password else "")
        return 200, {"feed": request.feed, "password": "set" if password else "none"}

    def _check(self, event: Event, request: Request) -> None:
        check_known(request.feed, self._control.feeds)
        NEEDS[event["routeKey"]].admit(self._guard, request.feed, request.credential)


def _password(fields: Mapping[str, Any]) -> str:
    """Without its value in the error."""
    for name in fields.keys() - {"password"}:
        raise InvalidRelay("is not known here; there is password", field=name)
    found = fields.get("password")
    if not isinstance(found, str):
        raise InvalidRelay("must be a text", field="password")
    return found
