"""Serve the routes of named consumers and of the log; reject unknown fields of a request."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.auth.guard import ADMIN
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import (
    Acknowledgement,
    Lag,
    Reason,
    Session,
    check_name,
    reason_from,
)
from tidings.core.errors import InvalidConsumer, parse_field
from tidings.core.model import filters
from tidings.core.model.cursors import Place
from tidings.core.model.events import content_of
from tidings.core.model.json_body import object_from
from tidings.core.model.operations import decode
from tidings.http.answers import json_answer
from tidings.http.routes import CONSUMER_ACTIONS, NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard, Need
    from tidings.core.consumers.consumer import Parked
    from tidings.core.consumers.log_view import Entry
    from tidings.core.consumers.service import Consumers
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request

Body = Mapping[str, Any]
Document = dict[str, Any]
Reply = tuple[int, Document]
_BELOW = "/feeds/{feed}/consumers"


class ConsumerRequest:
    """A request of a worker or operator about the feed with the key *feed*."""

    def __init__(self, request: Request, feed: str) -> None:
        self.parameters, self.query, self.feed = request.parameters, request.query, feed
        self.name = self.parameters.get("name", "")
        self.credential = request.credential
        self._content = request.content
        self.only_new = request.only_new
        self._user = self.credential.user if self.credential else ""

    def fields(self, *known: str) -> Mapping[str, Any]:
        """Return the body, which may have only the fields *known*. An empty body has no fields.

        Raises:
            InvalidConsumer, InvalidOperation: the body has another field, or is not a JSON object.
        """
        body = object_from(self._content(), InvalidConsumer)
        for name in body:
            if name not in known:
                rule = f"is not known here; the known fields are {', '.join(known)}"
                raise InvalidConsumer(rule, field=name)  # omit the value, which may be a secret
        return body

    def check_query(self, *known: str) -> None:
        for name in self.query:
            if name not in known:
                rule = f"is not known here; the known parameters are {', '.join(known)}"
                raise InvalidConsumer(rule, field=name)

    def reason(self, *others: str) -> Reason:
        body = self.fields("why", "by", *others)
        return reason_from(self.who(body), body.get("why"))

    def who(self, body: Body) -> str:
        """Return the name that the operator gave, or the user of HTTP Basic."""
        given = body.get("by", self._user)
        if not isinstance(given, str) or not given:
            raise InvalidConsumer("must be the name of the operator", field="by", value=given)
        return given

    def limit(self) -> int:
        most = limits.LOG_ENTRIES_MAX
        return parse_field(self.query.get("limit", str(most)), "limit", 1, most, InvalidConsumer)


def acknowledgement(body: Body) -> Acknowledgement:
    ids, retried = _list(body, "ids"), _list(body, "retried")
    return Acknowledgement(
        through=position.parse_position(body["through"], "through") if "through" in body else None,
        ids=tuple(_entries(ids)),
        sending=position.parse_position(body["sending"], "sending") if "sending" in body else None,
        retried=tuple(dict.fromkeys(retried)),
        written=_written(body["written"]) if "written" in body else None,
    )


def _written(number: object) -> int:
    if type(number) is not int or not 0 <= number <= limits.WRITTEN_MAX:
        rule = f"must be a number from 0 to {limits.WRITTEN_MAX:,}"
        raise InvalidConsumer(rule, field="written", value=number)
    return number


def _entries(ids: list[str]) -> list[Place]:
    return [position.entry(each, "ids") for each in ids]


def _list(body: Body, field: str) -> list[str]:
    ids = body.get(field, [])
    texts = isinstance(ids, list) and all(isinstance(each, str) for each in ids)
    if not texts or len(ids) > limits.ACK_IDS_MAX:
        rule = f"must be a list of at most {limits.ACK_IDS_MAX} ids"
        raise InvalidConsumer(rule, field=field, value=ids)
    return list(ids)


def fence(body: Body) -> int:
    number = body.get("fence")
    if not isinstance(number, int) or isinstance(number, bool):
        rule = "must be the fence number of the lease"
        raise InvalidConsumer(rule, field="fence", value=number)
    return number


def text(body: Body, field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidConsumer("must be a non-empty string", field=field, value=value)
    return value


def entry_document(entry: Entry) -> Document:
    """Return the position, commit time, event and data of *entry*, an operation in the log."""
    return {"id": entry.place.encode(), "at_ms": entry.at_ms, **_operation(entry.line)}


def parked_document(parked: Parked, wanted: filters.Filter) -> Document:
    return {
        "id": parked.id,
        "at_ms": parked.at_ms,
        "error": parked.error,
        "attempts": parked.attempts,
        **_operation(parked.line, erasures=wanted.erasures),
    }


def _operation(line: str, *, erasures: bool = False) -> Document:
    event, data = content_of(line, erasures=erasures)
    return {"event": event, "data": decode(data)}


def session_document(session: Session, now_ms: int) -> Document:
    """Return the data that a worker needs to continue."""
    consumer = session.consumer
    return {
        "fence": consumer.fence,
        "lease_ms": max(0, consumer.until_ms - now_ms),
        "cursor": session.cursor,
        "copying": consumer.copying,
        "acked": position.encode_spans(consumer.acked),
        "single_through": position.encode_position(consumer.single),
        "retries": list(consumer.retries),
        "paused": consumer.paused,
        "written": consumer.written,
        **filter_document(consumer.filter),
    }


def filter_document(wanted: filters.Filter) -> Document:
    """Return the filter of a named consumer; `erasures` is present if it is True."""
    return {**wanted.values(), **({filters.ERASURES: True} if wanted.erasures else {})}


def consumer_document(consumer: Consumer, lag: Lag, now_ms: int) -> Document:
    failure = consumer.failure
    return {
        "name": consumer.name,
        "state": "fell-off" if lag.fell_off else consumer.state(now_ms),
        "position": position.encode_position(consumer.position),
        "copying": consumer.copying,
        "acked": position.encode_spans(consumer.acked),
        "lag_pages": lag.pages,
        "lag_ms": lag.ms,
        "parked": consumer.parked,
        "retries": list(consumer.retries),
        "single_through": position.encode_position(consumer.single),
        "failure": failure and asdict(failure) | {"id": failure.id or None},
        "paused": consumer.paused,
        "written": consumer.written,
        "worker": consumer.owner if consumer.is_held(now_ms) else None,
        **filter_document(consumer.filter),
    }


class UnknownAction(InvalidConsumer, code="unknown_action", status=404):
    """The path names an action that consumers do not have."""


class ConsumerRouter:
    """The endpoint of the routes of named consumers and of the log.

    It selects a method by the route key, or by the action in the path. *webhooks* returns the names
    of the webhooks of a feed. The worker of a webhook's consumer is the server, so that requests of
    other workers need the role `admin`.
    """

    def __init__(
        self,
        consumers: Consumers,
        guard: Guard,
        feeds: FeedNames,
        webhooks: Callable[[str], Container[str]] | None = None,
    ) -> None:
        self._consumers, self._guard, self._feeds = consumers, guard, feeds
        self._webhooks = webhooks
        self._routes: dict[str, Callable[[ConsumerRequest], Reply]] = {
            "GET /feeds/{feed}/log": self._log,
            f"GET {_BELOW}": self._list,
            f"GET {_BELOW}/{{name}}": self._show,
            f"GET {_BELOW}/{{name}}/parked": self._list_parked,
            f"GET {_BELOW}/{{name}}/notes": self._notes,
            f"PUT {_BELOW}/{{name}}": self._register,
            f"DELETE {_BELOW}/{{name}}": self._delete,
        }
        self._actions: dict[str, Callable[[ConsumerRequest], Reply]] = {
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
        consumer_request = ConsumerRequest(request, self._feeds.key(request.feed))
        need, reply = self._select(request.route, consumer_request)
        need.admit(self._guard, consumer_request.feed, consumer_request.credential)
        return json_answer(*reply(consumer_request))

    def _select(
        self, route: str, request: ConsumerRequest
    ) -> tuple[Need, Callable[[ConsumerRequest], Reply]]:
        if route in self._routes:
            return NEEDS[route], self._routes[route]
        action = request.parameters.get("action", "")
        if action not in self._actions:
            rule = f"must be one of {', '.join(self._actions)}"
            raise UnknownAction(rule, field="action", value=action)
        is_hook = self._webhooks is not None and request.name in self._webhooks(request.feed)
        return ADMIN if is_hook else CONSUMER_ACTIONS[action], self._actions[action]

    def _log(self, request: ConsumerRequest) -> Reply:
        """Return the oldest and latest ids, or the requested range if the query has `from`."""
        view = self._consumers.view
        request.check_query("from", "to", "limit")
        for name in sorted(request.query.keys() - {"from"}):
            if "from" not in request.query:
                raise InvalidConsumer("needs the parameter from", field=name)
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

    def _list(self, request: ConsumerRequest) -> Reply:
        found = self._consumers.all(request.feed)
        return 200, {"consumers": [self._describe(each, lag) for each, lag in found]}

    def _show(self, request: ConsumerRequest) -> Reply:
        consumer, lag = self._consumers.one(request.feed, request.name)
        return 200, self._describe(consumer, lag)

    def _list_parked(self, request: ConsumerRequest) -> Reply:
        parked = self._consumers.parked(request.feed, request.name)
        wanted = self._consumers.repository.consumer(request.feed, request.name).filter
        return 200, {"parked": [parked_document(each, wanted) for each in parked]}

    def _notes(self, request: ConsumerRequest) -> Reply:
        """Return the records of operators' actions on a consumer, even if it has been deleted."""
        notes = self._consumers.store.notes(request.feed, check_name(request.name))
        documents = [
            {"at_ms": note.at_ms, "who": note.who, "what": note.what, "why": note.why}
            | ({"id": note.id} if note.id else {})
            for note in notes
        ]
        return 200, {"notes": documents}

    def _register(self, request: ConsumerRequest) -> Reply:
        body = request.fields("from", *filters.FIELDS, filters.ERASURES)
        chosen = filters.of_consumer(body, InvalidConsumer)
        wanted = Consumer(request.feed, request.name, chosen)
        start = body.get("from", position.OLDEST)
        consumer, new = self._consumers.register(
            request.feed, request.name, wanted, start, only_new=request.only_new
        )
        lag = self._consumers.one(request.feed, request.name)[1]
        return (201 if new else 200), self._describe(consumer, lag)

    def _delete(self, request: ConsumerRequest) -> Reply:
        request.check_query("why", "by")
        why = reason_from(request.who(request.query), request.query.get("why"))
        self._consumers.remove(request.feed, request.name, why)
        return 200, {"deleted": request.name}

    def _lease(self, request: ConsumerRequest) -> Reply:
        body = request.fields("worker")
        worker = text(body, "worker")
        return self._session_reply(self._consumers.lease(request.feed, request.name, worker))

    def _ack(self, request: ConsumerRequest) -> Reply:
        body = request.fields("fence", "through", "ids", "sending", "retried", "written")
        acknowledged = acknowledgement(body)
        session = self._consumers.acknowledge(request.feed, request.name, fence(body), acknowledged)
        return self._session_reply(session)

    def _fail(self, request: ConsumerRequest) -> Reply:
        body = request.fields("fence", "id", "error")
        entry = position.entry(body["id"], "id").encode() if "id" in body else ""
        error = text(body, "error")
        session = self._consumers.fail(request.feed, request.name, fence(body), entry, error)
        return self._session_reply(session)

    def _release(self, request: ConsumerRequest) -> Reply:
        body = request.fields("fence")
        return self._session_reply(self._consumers.release(request.feed, request.name, fence(body)))

    def _pause(self, request: ConsumerRequest) -> Reply:
        self._consumers.pause(request.feed, request.name, request.reason(), paused=True)
        return self._show(request)

    def _resume(self, request: ConsumerRequest) -> Reply:
        self._consumers.pause(request.feed, request.name, request.reason(), paused=False)
        return self._show(request)

    def _mark(self, request: ConsumerRequest) -> Reply:
        body = request.fields("why", "by", "position")
        target = text(body, "position")
        self._consumers.mark(request.feed, request.name, target, request.reason(*body))
        return self._show(request)

    def _step(self, request: ConsumerRequest) -> Reply:
        entry = self._consumers.step(request.feed, request.name, request.reason())
        return 200, {"stepped": entry_document(entry)}

    def _park(self, request: ConsumerRequest) -> Reply:
        entry = self._consumers.park(request.feed, request.name, request.reason())
        return 200, {"parked": entry_document(entry)}

    def _retry(self, request: ConsumerRequest) -> Reply:
        which = text(request.fields("why", "by", "id"), "id")
        self._consumers.retry(request.feed, request.name, which, request.reason("id"))
        return self._show(request)

    def _drop(self, request: ConsumerRequest) -> Reply:
        which = text(request.fields("why", "by", "id"), "id")
        self._consumers.drop(request.feed, request.name, which, request.reason("id"))
        return self._show(request)

    def _session_reply(self, session: Session) -> Reply:
        return 200, session_document(session, self._consumers.clock())

    def _describe(self, consumer: Consumer, lag: Lag) -> Document:
        return consumer_document(consumer, lag, self._consumers.clock())
