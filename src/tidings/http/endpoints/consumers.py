"""The routes of named consumers, for workers and operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import Lag, Session, reason_from
from tidings.core.errors import InvalidConsumer
from tidings.core.model import filters
from tidings.core.model.feeds import check_known
from tidings.http.answers import json_answer
from tidings.http.endpoints.consumer_documents import (
    Document,
    consumer_document,
    entry_document,
    parked_document,
    session_document,
)
from tidings.http.endpoints.consumers_request import Asked, acknowledgement, fence, text
from tidings.http.routes import CONSUMER_ACTIONS, NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard, Need
    from tidings.core.consumers.service import Consumers
    from tidings.http.request import Answer, Request

Reply = tuple[int, Document]

_BELOW = "/feeds/{feed}/consumers"


class UnknownAction(InvalidConsumer, code="unknown_action", status=404):
    """The path names an unknown action on consumers."""


class ConsumerRouter:
    """The endpoint of these routes, selected by route key and by the action in the path."""

    def __init__(self, consumers: Consumers, guard: Guard, feeds: frozenset[str]) -> None:
        self._consumers, self._guard, self._feeds = consumers, guard, feeds
        self._routes: dict[str, Callable[[Asked], Reply]] = {
            "GET /feeds/{feed}/log": self._log,
            f"GET {_BELOW}": self._list,
            f"GET {_BELOW}/{{name}}": self._show,
            f"GET {_BELOW}/{{name}}/parked": self._parked,
            f"GET {_BELOW}/{{name}}/notes": self._notes,
            f"PUT {_BELOW}/{{name}}": self._register,
            f"DELETE {_BELOW}/{{name}}": self._delete,
        }
        self._actions: dict[str, Callable[[Asked], Reply]] = {
            "lease": self._lease,
            "ack": self._ack,
            "fail": self._fail,
            "release": self._release,
            "pause": self._pause,
            "resume": self._resume,
            "mark": self._mark,
            "step": self._step,
            "park": self._park,
            "retry": self._retry,
            "drop": self._drop,
        }

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            TidingsError: see `answers.refusal`.
        """
        consumer_request = Asked(request)
        check_known(consumer_request.feed, self._feeds)
        need, reply = self._chosen(request.route, consumer_request)
        need.admit(self._guard, consumer_request.feed, consumer_request.credential)
        return json_answer(*reply(consumer_request))

    def _chosen(self, route: str, request: Asked) -> tuple[Need, Callable[[Asked], Reply]]:
        if route in self._routes:
            return NEEDS[route], self._routes[route]
        action = request.parameters.get("action", "")
        if action not in self._actions:
            rule = f"must be one of {', '.join(self._actions)}"
            raise UnknownAction(rule, field="action", value=action)
        return CONSUMER_ACTIONS[action], self._actions[action]

    def _log(self, request: Asked) -> Reply:
        """Return the ends of the log, or the entries of a range if one is requested."""
        view = self._consumers.view
        request.check_query("from", "to", "limit")
        if "from" not in request.query:
            oldest, current = view.oldest(request.feed), view.current(request.feed)
            ends = {
                "oldest": oldest.place.encode() if oldest else None,
                "current": current.encode() if current else None,
                "end": view.frontier(request.feed).encode(),
            }
            return 200, ends
        first = position.entry(request.query["from"], "from")
        last = position.entry(request.query["to"], "to") if "to" in request.query else None
        entries = view.entries(request.feed, first, last, request.limit())
        return 200, {"entries": [entry_document(each) for each in entries]}

    def _list(self, request: Asked) -> Reply:
        found = self._consumers.all(request.feed)
        return 200, {"consumers": [self._described(each, lag) for each, lag in found]}

    def _show(self, request: Asked) -> Reply:
        consumer, lag = self._consumers.one(request.feed, request.name)
        return 200, self._described(consumer, lag)

    def _parked(self, request: Asked) -> Reply:
        parked = self._consumers.parked(request.feed, request.name)
        return 200, {"parked": [parked_document(each) for each in parked]}

    def _notes(self, request: Asked) -> Reply:
        """Return the notes of a consumer, also of a deleted one."""
        notes = self._consumers.store.notes(request.feed, request.name)
        documents = [
            {"at_ms": note.at_ms, "who": note.who, "what": note.what, "why": note.why}
            | ({"id": note.id} if note.id else {})
            for note in notes
        ]
        return 200, {"notes": documents}

    def _register(self, request: Asked) -> Reply:
        body = request.fields("from", *filters.FIELDS)
        wanted = Consumer(request.feed, request.name, filters.from_lists(body, InvalidConsumer))
        start = body.get("from", position.OLDEST)
        consumer, new = self._consumers.register(request.feed, request.name, wanted, start)
        lag = self._consumers.one(request.feed, request.name)[1]
        return (201 if new else 200), self._described(consumer, lag)

    def _delete(self, request: Asked) -> Reply:
        request.check_query("why", "by")
        why = reason_from(request.who(request.query), request.query.get("why"))
        self._consumers.remove(request.feed, request.name, why)
        return 200, {"deleted": request.name}

    def _lease(self, request: Asked) -> Reply:
        body = request.fields("worker")
        worker = text(body, "worker")
        return self._session_reply(self._consumers.lease(request.feed, request.name, worker))

    def _ack(self, request: Asked) -> Reply:
        body = request.fields("fence", "through", "ids", "sending", "retried")
        acknowledged = acknowledgement(body)
        session = self._consumers.acknowledge(request.feed, request.name, fence(body), acknowledged)
        return self._session_reply(session)

    def _fail(self, request: Asked) -> Reply:
        body = request.fields("fence", "id", "error")
        entry = position.entry(body["id"], "id").encode() if "id" in body else ""
        error = text(body, "error")
        session = self._consumers.fail(request.feed, request.name, fence(body), entry, error)
        return self._session_reply(session)

    def _release(self, request: Asked) -> Reply:
        body = request.fields("fence")
        return self._session_reply(self._consumers.release(request.feed, request.name, fence(body)))

    def _pause(self, request: Asked) -> Reply:
        self._consumers.pause(request.feed, request.name, request.reason(), paused=True)
        return self._show(request)

    def _resume(self, request: Asked) -> Reply:
        self._consumers.pause(request.feed, request.name, request.reason(), paused=False)
        return self._show(request)

    def _mark(self, request: Asked) -> Reply:
        body = request.fields("why", "by", "position")
        target = text(body, "position")
        self._consumers.mark(request.feed, request.name, target, request.reason(*body))
        return self._show(request)

    def _step(self, request: Asked) -> Reply:
        entry = self._consumers.step(request.feed, request.name, request.reason())
        return 200, {"stepped": entry_document(entry)}

    def _park(self, request: Asked) -> Reply:
        entry = self._consumers.park(request.feed, request.name, request.reason())
        return 200, {"parked": entry_document(entry)}

    def _retry(self, request: Asked) -> Reply:
        which = text(request.fields("why", "by", "id"), "id")
        self._consumers.retry(request.feed, request.name, which, request.reason("id"))
        return self._show(request)

    def _drop(self, request: Asked) -> Reply:
        which = text(request.fields("why", "by", "id"), "id")
        self._consumers.drop(request.feed, request.name, which, request.reason("id"))
        return self._show(request)

    def _session_reply(self, session: Session) -> Reply:
        return 200, session_document(session, self._consumers.clock())

    def _described(self, consumer: Consumer, lag: Lag) -> Document:
        return consumer_document(consumer, lag, self._consumers.clock())
