"""The routes of named consumers and of the log (PROTOCOL 14)."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from tidings.core import errors, limits
from tidings.core.auth.guard import ADMIN, CONSUME, READ_ALL
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import ALL, Acknowledgement, Reason, check_name, reason_from
from tidings.core.errors import InvalidConsumer, Rejected
from tidings.core.model import filters
from tidings.core.model.cursors import Place
from tidings.core.model.events import content_of
from tidings.core.model.operations import decode
from tidings.http import wire
from tidings.http.wire import Call, EntryId, Example, Fields, Given, Kind, Ms, Unset

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard, Need
    from tidings.core.consumers.consumer import Parked
    from tidings.core.consumers.log_view import Entry
    from tidings.core.consumers.service import Consumers, Lag, Session
    from tidings.http.wire import Declared

STATES = ("working", "idle", "failed", "paused", "fell-off")
Event = Annotated[str, wire.one_of("insert", "update", "delete", "leave", "erase", "reset", "live")]
_CONSUMERS = "/feeds/{feed}/consumers"
_CONSUMER = _CONSUMERS + "/{name}"


def _parse_fence(value: Any, name: str) -> int:
    if type(value) is not int:
        raise ValueError("must be the fence number of the lease")
    return value


def _parse_written(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= limits.WRITTEN_MAX:
        raise ValueError(f"must be a number from 0 to {limits.WRITTEN_MAX:,}")
    return value


def _parse_place(value: Any, name: str) -> position.Position | None:
    """Return the place; null is the same as a missing field."""
    return None if value is None else position.parse_position(value, name)


def _parse_ids(value: Any, name: str) -> list[str]:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not is_list or len(value) > limits.ACK_IDS_MAX:
        raise ValueError(f"must be a list of at most {limits.ACK_IDS_MAX} ids")
    return [*value]


def _parse_places(value: Any, name: str) -> list[Place]:
    return [position.entry(each, name) for each in _parse_ids(value, name)]


def _parse_operator(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be the name of the operator")
    return value


_IDS = {"type": "array", "items": wire.ID, "maxItems": limits.ACK_IDS_MAX}
_START = {"anyOf": [{"type": "string", "enum": ["oldest", "now", "copy"]}, wire.ID]}
Fence = Annotated[int, Kind(wire.INTEGER, _parse_fence), Example(3)]
Written = Annotated[int, Kind({**wire.INTEGER, "maximum": limits.WRITTEN_MAX}, _parse_written)]
OnePlace = Annotated[Place, Kind(wire.ID, position.entry), Example(EXAMPLE := wire.EXAMPLE_CURSOR)]
AnyPlace = Annotated[position.Position, Kind({**wire.ID, "type": ["string", "null"]}, _parse_place)]
# `filters.of_consumer` checks the values.
Values = Annotated[
    list[str],
    Kind(
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": limits.PARENT_BYTES_MAX},
            "maxItems": limits.FILTER_VALUES_MAX,
        }
    ),
]


# Requests.


class Filtered(Given, name=""):
    types: Annotated[Values, "only objects of these types", Example(["order"])] | None = None
    parents: Annotated[Values, "only objects with one of these parents"] | None = None
    ids: (
        Annotated[Values, "only objects with these ids; x* matches ids that begin with x"] | None
    ) = None
    erasures: (
        Annotated[bool, "receive an erasure as `erase` with its reason, instead of as `delete`"]
        | None
    ) = None

    def filter(self, wrong: type[Rejected]) -> filters.Filter:
        return filters.of_consumer(self.sent, wrong)


class ConsumerRequest(Filtered):
    from_: (
        Annotated[
            Any,
            Kind(_START),
            "start: oldest, now, copy (every object first) or the id of a message",
            Example(position.OLDEST),
        ]
        | None
    ) = None


class LeaseRequest(Given):
    worker: Annotated[str, wire.text_of(limits.WORKER_CHARS_MAX), Example("host-1/4711")]


class AcknowledgementRequest(
    Given, name="Acknowledgement", first=("ids", "retried", "through", "sending", "written")
):
    fence: Fence
    through: Annotated[AnyPlace, Example(EXAMPLE)] | None = None
    ids: Annotated[Sequence[Place], Kind(_IDS, _parse_places)] = ()
    sending: AnyPlace | None = None
    retried: Annotated[Sequence[str], Kind(_IDS, _parse_ids)] = ()
    written: Written | None = None


class FailureReport(Given, first=("id", "error")):
    fence: Fence
    id: OnePlace | None = None
    error: Annotated[str, wire.text_of(limits.REQUEST_BYTES_MAX), Example("409 Conflict")]


class FenceRequest(Given, name="Fence"):
    fence: Fence


class OperatorRequest(Given, name="Reason"):
    # `reason_from` checks the reason, after the operator.
    why: Annotated[
        str | None,
        Kind({**wire.TEXT, "maxLength": limits.WHY_CHARS_MAX}),
        "the reason, for the notes of the consumer",
        Example("the index was rebuilt"),
    ]
    by: (
        Annotated[
            str,
            Kind(wire.TEXT, _parse_operator),
            "the operator; needed unless HTTP Basic names a user",
            Example("ann"),
        ]
        | None
    ) = None


class Mark(OperatorRequest):
    position: Annotated[str, Kind(_START, wire.parse_text), Example(position.OLDEST)]


class ParkedChoice(OperatorRequest):
    id: Annotated[
        str,
        Kind({"anyOf": [{"type": "string", "enum": [ALL]}, wire.ID]}, wire.parse_text),
        Example(EXAMPLE),
    ]


class LogQuery(Given):
    from_: Annotated[OnePlace, "the first entry"] | None = None
    to: Annotated[OnePlace, "the last entry"] | None = None
    limit: (
        Annotated[int, wire.integer(1, limits.LOG_ENTRIES_MAX), "the maximum number of entries"]
        | None
    ) = None


# Responses.


class LogEntry(Fields):
    """An operation in the log."""

    id: EntryId
    at_ms: Ms
    event: Annotated[Event, Example("update")]
    data: wire.FeedObject

    @classmethod
    def of(cls, entry: Entry) -> Self:
        event, data = content_of(entry.line)
        return cls(id=entry.place.encode(), at_ms=entry.at_ms, event=event, data=decode(data))


class LogEnds(Fields):
    oldest: EntryId | None
    current: EntryId | None
    end: Annotated[EntryId, Example(wire.EXAMPLE_END)]


class LogEntries(Fields):
    entries: list[LogEntry]


class ParkedMessage(LogEntry, name=""):
    error: Annotated[str, Example("409 Conflict")]
    attempts: Annotated[int, Example(3)]

    @classmethod
    def of_parked(cls, parked: Parked, wanted: filters.Filter) -> Self:
        event, data = content_of(parked.line, erasures=wanted.erasures)
        return cls.copy_of(parked, event=event, data=decode(data))


class ParkedMessages(Fields):
    parked: list[ParkedMessage]


class NoteReport(Fields, name=""):
    at_ms: Ms
    who: Annotated[str, Example("ann")]
    what: Annotated[str, Example("pause")]
    why: Annotated[str, Example("the index was rebuilt")]
    id: str | Unset = wire.UNSET


class Notes(Fields):
    notes: list[NoteReport]


class ConsumerFailure(Fields, name=""):
    id: EntryId | None
    error: str
    at_ms: Ms
    times: int


class FilterFields(Fields, name=""):
    """The filter of a consumer, with only the fields that it has."""

    types: Annotated[list[str], Example(["order"])] | Unset = wire.UNSET
    parents: list[str] | Unset = wire.UNSET
    ids: list[str] | Unset = wire.UNSET
    erasures: bool | Unset = wire.UNSET


class LeaseReport(FilterFields, name="Lease"):
    """The data that a worker needs to continue."""

    fence: Annotated[int, Example(3)]
    lease_ms: Annotated[int, Example(30_000)]
    cursor: Annotated[str, Example(wire.EXAMPLE_END)]
    copying: bool
    acked: str
    single_through: EntryId | None
    retries: list[str]
    paused: bool
    written: int

    @classmethod
    def of(cls, session: Session, now_ms: int) -> Self:
        consumer = session.consumer
        return cls.copy_of(
            consumer,
            lease_ms=max(0, consumer.until_ms - now_ms),
            cursor=session.cursor,
            acked=position.encode_spans(consumer.acked),
            single_through=position.encode_position(consumer.single),
            **filter_document(consumer.filter),
        )


class ConsumerReport(FilterFields, name="Consumer"):
    name: Annotated[str, Example("search")]
    state: Annotated[str, wire.one_of(*STATES), Example("idle")]
    position: Annotated[str | None, Example(wire.EXAMPLE_END)]
    copying: bool
    acked: str
    lag_pages: int
    lag_ms: int
    parked: int
    retries: list[str]
    single_through: EntryId | None
    failure: ConsumerFailure | None
    paused: bool
    written: int
    worker: str | None

    @classmethod
    def of(cls, consumer: Consumer, lag: Lag, now_ms: int) -> Self:
        failure = consumer.failure
        return cls.copy_of(
            consumer,
            state="fell-off" if lag.fell_off else consumer.state(now_ms),
            position=position.encode_position(consumer.position),
            acked=position.encode_spans(consumer.acked),
            lag_pages=lag.pages,
            lag_ms=lag.ms,
            single_through=position.encode_position(consumer.single),
            failure=failure and ConsumerFailure.copy_of(failure, id=failure.id or None),
            worker=consumer.owner if consumer.is_held(now_ms) else None,
            **filter_document(consumer.filter),
        )


class ConsumerList(Fields, name="Consumers"):
    consumers: list[ConsumerReport]


class Deleted(Fields):
    deleted: Annotated[str, Example("search")]


class Stepped(Fields):
    stepped: LogEntry


class ParkedEntry(Fields, name="Parked"):
    parked: LogEntry


def filter_document(wanted: filters.Filter) -> dict[str, Any]:
    """Return the filter of a named consumer; `erasures` is present if it is True."""
    return {**wanted.values(), **({filters.ERASURES: True} if wanted.erasures else {})}


def reason_of(call: Call, given: OperatorRequest) -> Reason:
    """Return the reason, with the name that the operator gave, or the user of HTTP Basic."""
    user = call.credential.user if call.credential else ""
    return reason_from(given.by or _parse_user(user), given.why)


def _parse_user(user: str) -> str:
    try:
        return _parse_operator(user, "by")
    except ValueError as error:
        raise InvalidConsumer(str(error), field="by", value=user) from None


class UnknownAction(InvalidConsumer, code="unknown_action", status=404):
    """The path names an action that consumers do not have."""


_BY_NAME = (errors.InvalidConsumer, errors.UnknownConsumer)
_WORKED = (*_BY_NAME, errors.FenceLost, errors.ConsumerFellOff, errors.UnknownParked)
_OPERATED = (*_BY_NAME, errors.NothingDone)


def _action(
    name: str, need: Need, section: str, errors: tuple[type[Rejected], ...]
) -> Callable[[wire.Method], wire.Method]:
    return wire.post(f"{_CONSUMER}/{name}", need, section, is_action=True, errors=errors)


@dataclass(frozen=True)
class ConsumerRouter(
    wire.Routes, function="consume", error=InvalidConsumer, unknown_action=UnknownAction
):
    """The endpoint of the routes of named consumers and of the log.

    *webhooks* returns the names of the webhooks of a feed. The worker of a webhook's consumer is
    the server, so that requests of other workers need the role `admin`.
    """

    consumers: Consumers
    guard: Guard
    webhooks: Callable[[str], Container[str]] | None = None

    @wire.get("/feeds/{feed}/log", READ_ALL, "14.8", errors=(InvalidConsumer,))
    def read_log(self, call: Call, query: LogQuery) -> LogEnds | LogEntries:
        """Return the ids of the oldest and the latest operation, or a range of operations."""
        view = self.consumers.view
        if query.from_ is not None:
            limit = query.limit or limits.LOG_ENTRIES_MAX
            found = view.entries(call.feed, query.from_, query.to, limit)
            return LogEntries(entries=[LogEntry.of(each) for each in found])
        for name in sorted(query.sent):
            raise InvalidConsumer("needs the parameter from", field=name)
        oldest, current = view.oldest(call.feed), view.current(call.feed)
        return LogEnds(
            oldest=oldest.place.encode() if oldest else None,
            current=current.encode() if current else None,
            end=view.frontier(call.feed).encode(),
        )

    @wire.get(_CONSUMERS, READ_ALL, "14.2")
    def list_consumers(self, call: Call) -> ConsumerList:
        """Return all named consumers."""
        found = self.consumers.all(call.feed)
        return ConsumerList(consumers=[self._report(each, lag) for each, lag in found])

    @wire.put(
        _CONSUMER,
        ADMIN,
        "14.2",
        headers=("If-None-Match",),
        status=201,
        more=(200,),
        errors=(InvalidConsumer, errors.ConsumerExists),
    )
    def put_consumer(self, call: Call, body: ConsumerRequest) -> ConsumerReport:
        """Register a consumer."""
        wanted = Consumer(call.feed, call.name, body.filter(InvalidConsumer))
        start = position.OLDEST if body.from_ is None else body.from_
        consumer, is_new = self.consumers.register(
            call.feed, call.name, wanted, start, only_new=call.request.only_new
        )
        call.status = 201 if is_new else 200
        return self._report(consumer, self.consumers.one(call.feed, call.name)[1])

    @wire.get(_CONSUMER, READ_ALL, "14.2", errors=_BY_NAME)
    def get_consumer(self, call: Call) -> ConsumerReport:
        """Return one consumer."""
        return self._report(*self.consumers.one(call.feed, call.name))

    @wire.delete(_CONSUMER, ADMIN, "14.6", errors=_BY_NAME)
    def delete_consumer(self, call: Call, query: OperatorRequest) -> Deleted:
        """Delete a consumer."""
        self.consumers.remove(call.feed, call.name, reason_of(call, query))
        return Deleted(deleted=call.name)

    @wire.get(_CONSUMER + "/parked", READ_ALL, "14.6", errors=_BY_NAME)
    def list_parked_messages(self, call: Call) -> ParkedMessages:
        """Return the parked messages of a consumer."""
        parked = self.consumers.parked(call.feed, call.name)
        wanted = self.consumers.repository.consumer(call.feed, call.name).filter
        return ParkedMessages(parked=[ParkedMessage.of_parked(each, wanted) for each in parked])

    @wire.get(_CONSUMER + "/notes", READ_ALL, "14.6", errors=(InvalidConsumer,))
    def list_notes(self, call: Call) -> Notes:
        """Return the notes about actions of operators.

        They remain when the consumer is deleted.
        """
        notes = self.consumers.store.notes(call.feed, check_name(call.name))
        return Notes(notes=[NoteReport.copy_of(each, id=each.id or wire.UNSET) for each in notes])

    @_action("lease", CONSUME, "14.3", errors=(*_WORKED, errors.ConsumerHeld))
    def lease_consumer(self, call: Call, body: LeaseRequest) -> LeaseReport:
        """Acquire the lease as a worker."""
        return self._lease(self.consumers.lease(call.feed, call.name, body.worker))

    @_action("ack", CONSUME, "14.4", errors=_WORKED)
    def acknowledge_messages(self, call: Call, body: AcknowledgementRequest) -> LeaseReport:
        """Acknowledge messages, renew the lease."""
        done = Acknowledgement(
            through=body.through,
            ids=tuple(body.ids),
            sending=body.sending,
            retried=tuple(dict.fromkeys(body.retried)),
            written=body.written,
        )
        return self._lease(self.consumers.acknowledge(call.feed, call.name, body.fence, done))

    @_action("fail", CONSUME, "14.4", errors=_WORKED)
    def report_failure(self, call: Call, body: FailureReport) -> LeaseReport:
        """Report a failure, release the lease."""
        entry = body.id.encode() if body.id else ""
        return self._lease(self.consumers.fail(call.feed, call.name, body.fence, entry, body.error))

    @_action("release", CONSUME, "14.4", errors=_WORKED)
    def release_consumer(self, call: Call, body: FenceRequest) -> LeaseReport:
        """Release the lease."""
        return self._lease(self.consumers.release(call.feed, call.name, body.fence))

    @_action("pause", ADMIN, "14.6", errors=_OPERATED)
    def pause_consumer(self, call: Call, body: OperatorRequest) -> ConsumerReport:
        """Pause a consumer."""
        self.consumers.pause(call.feed, call.name, reason_of(call, body), paused=True)
        return self.get_consumer(call)

    @_action("resume", ADMIN, "14.6", errors=_OPERATED)
    def resume_consumer(self, call: Call, body: OperatorRequest) -> ConsumerReport:
        """Resume a consumer."""
        self.consumers.pause(call.feed, call.name, reason_of(call, body), paused=False)
        return self.get_consumer(call)

    @_action("mark", ADMIN, "14.6", errors=_OPERATED)
    def mark_consumer(self, call: Call, body: Mark) -> ConsumerReport:
        """Set the position of a consumer."""
        self.consumers.mark(call.feed, call.name, body.position, reason_of(call, body))
        return self.get_consumer(call)

    @_action("step", ADMIN, "14.6", errors=_OPERATED)
    def step_consumer(self, call: Call, body: OperatorRequest) -> Stepped:
        """Acknowledge the next message without sending it."""
        entry = self.consumers.step(call.feed, call.name, reason_of(call, body))
        return Stepped(stepped=LogEntry.of(entry))

    @_action("park", ADMIN, "14.6", errors=_OPERATED)
    def park_message(self, call: Call, body: OperatorRequest) -> ParkedEntry:
        """Park the message that failed."""
        entry = self.consumers.park(call.feed, call.name, reason_of(call, body))
        return ParkedEntry(parked=LogEntry.of(entry))

    @_action("retry", ADMIN, "14.6", errors=(*_OPERATED, errors.UnknownParked))
    def retry_parked_messages(self, call: Call, body: ParkedChoice) -> ConsumerReport:
        """Send parked messages again."""
        self.consumers.retry(call.feed, call.name, body.id, reason_of(call, body))
        return self.get_consumer(call)

    @_action("drop", ADMIN, "14.6", errors=(*_OPERATED, errors.UnknownParked))
    def drop_parked_messages(self, call: Call, body: ParkedChoice) -> ConsumerReport:
        """Delete parked messages."""
        self.consumers.drop(call.feed, call.name, body.id, reason_of(call, body))
        return self.get_consumer(call)

    def admit(self, found: Declared, call: Call) -> Allowed:
        is_hook = self.webhooks is not None and call.name in self.webhooks(call.feed)
        need = ADMIN if found.action and is_hook else found.need
        return need.admit(self.guard, call.feed, call.credential)

    def _lease(self, session: Session) -> LeaseReport:
        return LeaseReport.of(session, self.consumers.clock())

    def _report(self, consumer: Consumer, lag: Lag) -> ConsumerReport:
        return ConsumerReport.of(consumer, lag, self.consumers.clock())
