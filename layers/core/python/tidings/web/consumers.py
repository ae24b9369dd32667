"""The routes of named consumers: what workers and operators ask and what they are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.core.consumers import position
from tidings.core.consumers.admin import reason_from
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.worker import Lag, Session
from tidings.core.errors import InvalidConsumer
from tidings.core.model import filters
from tidings.core.model.feeds import check_known
from tidings.web.answers import json_answer
from tidings.web.consumer_documents import (
    Document,
    consumer_document,
    entry_document,
    parked_document,
    session_document,
)
from tidings.web.consumers_request import Asked, acknowledgement, fence, text
from tidings.web.routes import CONSUMER_ACTIONS, NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.auth.permissions import Need
    from tidings.core.consumers.admin import Overseer
    from tidings.core.consumers.worker import Watchers, Workers
    from tidings.web.request import Answer, Request

Reply = tuple[int, Document]

_BELOW = "/feeds/{feed}/consumers"


class UnknownAction(InvalidConsumer, code="unknown_action", status=404):
    """Nothing that workers or operators do to a consumer is called so."""


class ConsumerRouter:
    """Answers one request, by the key of its route and the action in its path."""

    def __init__(
        self,
        watchers: Watchers,
        workers: Workers,
        overseer: Overseer,
        guard: Guard,
        feeds: frozenset[str],
    ) -> None:
        self._watchers, self._workers, self._overseer = watchers, workers, overseer
        self._guard, self._feeds = guard, feeds
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
        Raises:
            TidingsError: see `answers.refusal`.
        """
        asked = Asked(request)
        check_known(asked.feed, self._feeds)
        need, reply = self._chosen(request.route, asked)
        need.admit(self._guard, asked.feed, asked.credential)
        return json_answer(*reply(asked))

    def _chosen(self, route: str, asked: Asked) -> tuple[Need, Callable[[Asked], Reply]]:
        if route in self._routes:
            return NEEDS[route], self._routes[route]
        action = asked.parameters.get("action", "")
        if action not in self._actions:
            rule = f"must be one of {', '.join(self._actions)}"
            raise UnknownAction(rule, field="action", value=action)
        return CONSUMER_ACTIONS[action], self._actions[action]

    def _log(self, asked: Asked) -> Reply:
        """The ends of the log, and the entries of a stretch where one is asked for."""
        view = self._watchers.view
        asked.check_query("from", "to", "limit")
        if "from" not in asked.query:
            oldest, current = view.oldest(asked.feed), view.current(asked.feed)
            ends = {
                "oldest": oldest.place.encode() if oldest else None,
                "current": current.encode() if current else None,
                "end": view.frontier(asked.feed).encode(),
            }
            return 200, ends
        first = position.entry(asked.query["from"], "from")
        last = position.entry(asked.query["to"], "to") if "to" in asked.query else None
        found = view.entries(asked.feed, first, last, asked.limit())
        return 200, {"entries": [entry_document(each) for each in found]}

    def _list(self, asked: Asked) -> Reply:
        found = self._watchers.consumers(asked.feed)
        return 200, {"consumers": [self._described(each, lag) for each, lag in found]}

    def _show(self, asked: Asked) -> Reply:
        consumer, lag = self._watchers.consumer(asked.feed, asked.name)
        return 200, self._described(consumer, lag)

    def _parked(self, asked: Asked) -> Reply:
        found = self._watchers.parked(asked.feed, asked.name)
        return 200, {"parked": [parked_document(each) for each in found]}

    def _notes(self, asked: Asked) -> Reply:
        """Also of a consumer that was deleted."""
        found = self._watchers.shelf.notes(asked.feed, asked.name)
        told = [
            {"at_ms": note.at_ms, "who": note.who, "what": note.what, "why": note.why}
            | ({"id": note.id} if note.id else {})
            for note in found
        ]
        return 200, {"notes": told}

    def _register(self, asked: Asked) -> Reply:
        body = asked.fields("from", *filters.FIELDS)
        wanted = Consumer(asked.feed, asked.name, filters.from_lists(body, InvalidConsumer))
        start = body.get("from", position.OLDEST)
        consumer, new = self._overseer.register(asked.feed, asked.name, wanted, start)
        lag = self._watchers.consumer(asked.feed, asked.name)[1]
        return (201 if new else 200), self._described(consumer, lag)

    def _delete(self, asked: Asked) -> Reply:
        asked.check_query("why", "by")
        why = reason_from(asked.who(asked.query), asked.query.get("why"))
        self._overseer.remove(asked.feed, asked.name, why)
        return 200, {"deleted": asked.name}

    def _lease(self, asked: Asked) -> Reply:
        body = asked.fields("worker")
        worker = text(body, "worker")
        return self._told(self._workers.lease(asked.feed, asked.name, worker))

    def _ack(self, asked: Asked) -> Reply:
        body = asked.fields("fence", "through", "ids", "sending", "retried")
        said = acknowledgement(body)
        session = self._workers.acknowledge(asked.feed, asked.name, fence(body), said)
        return self._told(session)

    def _fail(self, asked: Asked) -> Reply:
        body = asked.fields("fence", "id", "error")
        entry = position.entry(body["id"], "id").encode() if "id" in body else ""
        error = text(body, "error")
        session = self._workers.fail(asked.feed, asked.name, fence(body), entry, error)
        return self._told(session)

    def _release(self, asked: Asked) -> Reply:
        body = asked.fields("fence")
        return self._told(self._workers.release(asked.feed, asked.name, fence(body)))

    def _pause(self, asked: Asked) -> Reply:
        self._overseer.pause(asked.feed, asked.name, asked.reason(), paused=True)
        return self._show(asked)

    def _resume(self, asked: Asked) -> Reply:
        self._overseer.pause(asked.feed, asked.name, asked.reason(), paused=False)
        return self._show(asked)

    def _mark(self, asked: Asked) -> Reply:
        body = asked.fields("why", "by", "position")
        target = text(body, "position")
        self._overseer.mark(asked.feed, asked.name, target, asked.reason(*body))
        return self._show(asked)

    def _step(self, asked: Asked) -> Reply:
        entry = self._overseer.step(asked.feed, asked.name, asked.reason())
        return 200, {"stepped": entry_document(entry)}

    def _park(self, asked: Asked) -> Reply:
        entry = self._overseer.park(asked.feed, asked.name, asked.reason())
        return 200, {"parked": entry_document(entry)}

    def _retry(self, asked: Asked) -> Reply:
        which = text(asked.fields("why", "by", "id"), "id")
        self._overseer.retry(asked.feed, asked.name, which, asked.reason("id"))
        return self._show(asked)

    def _drop(self, asked: Asked) -> Reply:
        which = text(asked.fields("why", "by", "id"), "id")
        self._overseer.drop(asked.feed, asked.name, which, asked.reason("id"))
        return self._show(asked)

    def _told(self, session: Session) -> Reply:
        return 200, session_document(session, self._workers.clock())

    def _described(self, consumer: Consumer, lag: Lag) -> Document:
        return consumer_document(consumer, lag, self._watchers.clock())
