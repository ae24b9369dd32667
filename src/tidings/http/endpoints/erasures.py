"""The routes of erasures (PROTOCOL 22)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from tidings.core import errors, limits
from tidings.core.auth.guard import ERASE
from tidings.core.erasure.entries import parse_request
from tidings.core.erasure.records import Phase
from tidings.core.errors import InvalidOperation, Rejected
from tidings.core.ingest.ingest import check_key
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.core.model.timestamps import from_ms, from_ms_if_set
from tidings.http import wire
from tidings.http.wire import Call, EntryId, Example, Fields, Given, Kind, Time

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.erasure.records import Erasure
    from tidings.core.erasure.service import ErasureReporter, Erasures, Location
    from tidings.http.request import Answer, Request

_ERASURES = "/feeds/{feed}/erasures"
PENDING, ERASED, DONE = "pending", "erased", "done"


class InvalidErasure(Rejected, code="invalid_erasure"):
    """A field of a request for an erasure breaks its rule, or is unknown."""


class UnknownErasure(Rejected, code="unknown_erasure", status=404):
    """The feed has no erasure with this id."""


def _parse_after(value: str, name: str) -> str:
    if value and not isinstance(cursors.parse_cursor(value), Place):
        raise ValueError("must be the id of an erasure")
    return value


class ErasureRequest(Given):
    """The fields of a request, which `parse_request` checks."""

    type: Annotated[
        str, Kind({**wire.TEXT, "maxLength": limits.TYPE_BYTES_MAX}), Example("customer")
    ]
    id: Annotated[str, Kind({**wire.TEXT, "maxLength": limits.ID_BYTES_MAX}), Example("ann")]
    reason: Annotated[
        str,
        Kind({**wire.TEXT, "maxLength": limits.WHY_CHARS_MAX}),
        "reason, stored for ever and sent to consumers; without personal data",
        Example("request 4711"),
    ]
    parents: (
        Annotated[bool, "also remove TYPE/ID from the parents and tags of all other objects"] | None
    ) = None
    before: Annotated[EntryId, "only erase operations before this event id"] | None = None


class ErasureQuery(Given):
    after: (
        Annotated[
            str,
            # An empty value is one that was not given.
            Kind({**wire.ID, "allowEmptyValue": True}, _parse_after),
            "the `next` of the previous list",
        ]
        | None
    ) = None


class ErasedObject(Fields, name=""):
    type: Annotated[str, Example("customer")]
    id: Annotated[str | None, Example("ann")]


class ErasureSummary(Fields, name="Erasure"):
    id: EntryId
    object: ErasedObject
    state: Annotated[str, wire.one_of(PENDING, ERASED, DONE)]
    found: bool | None
    by: Annotated[str, Example("key 3k2m9c0q8xw1")]
    reason: Annotated[str, Example("request 4711")]
    parents: bool
    before: EntryId | None
    requested_at: Time
    erased_at: Time | None
    until: Annotated[Time, Example("2026-12-11T18:59:33.363Z")]

    @classmethod
    def of(cls, erasure: Erasure, **others: Any) -> Self:
        is_done, is_erased = erasure.phase is Phase.DONE, erasure.reached(Phase.KEPT)
        return cls.copy_of(
            erasure,
            object=ErasedObject(type=erasure.type, id=erasure.object_id or None),
            state=DONE if is_done else ERASED if is_erased else PENDING,
            found=erasure.has_found if is_erased else None,
            parents=erasure.as_parent,
            before=erasure.before or None,
            requested_at=from_ms(erasure.requested_ms),
            erased_at=from_ms_if_set(erasure.done_ms),
            until=from_ms(erasure.until_ms),
            **others,
        )


class LocationReport(Fields, name=""):
    name: Annotated[str, Example("log")]
    status: Annotated[str, wire.one_of("done", "pending", "outside"), Example("pending")]
    until: Time | None
    note: Annotated[str, Example("the job has not run")]

    @classmethod
    def of(cls, location: Location) -> Self:
        return cls.copy_of(location, until=from_ms_if_set(location.until_ms))


class ErasureReport(ErasureSummary):
    locations: list[LocationReport]


class ErasureList(Fields, name="Erasures"):
    erasures: list[ErasureSummary]
    next: EntryId | None


@dataclass(frozen=True)
class ErasureRouter(wire.Routes, function="amend", error=InvalidErasure):
    """The endpoint of the routes of erasures."""

    guard: Guard
    erasures: Erasures
    reporter: ErasureReporter

    def __call__(self, request: Request) -> Answer:
        """Answer a request, see `Routes`. A field of an operation is one of the erasure here."""
        try:
            return super().__call__(request)
        except InvalidOperation as error:
            raise InvalidErasure(error.rule, field=error.field, value=error.value) from None

    @wire.post(
        _ERASURES,
        ERASE,
        "22.1",
        headers=("Idempotency-Key",),
        status=202,
        errors=(
            InvalidErasure,
            errors.InvalidKey,
            errors.KeyReused,
            errors.Chained,
            errors.Yielded,
        ),
    )
    def erase_object(self, call: Call, body: ErasureRequest) -> ErasureReport:
        """Erase an object."""
        given = call.request.headers.get("idempotency-key")
        key = None if given is None else call.allowed.namespaced_key(check_key(given))
        entry = parse_request(body.sent, by=call.caller)
        return self._report(call, self.erasures.request(call.feed, entry, key))

    @wire.get(_ERASURES, ERASE, "22.5", errors=(InvalidErasure,))
    def list_erasures(self, call: Call, query: ErasureQuery) -> ErasureList:
        """Return all erasures."""
        found = self.erasures.list(call.feed, query.after or "")
        is_full = len(found) >= limits.ERASURES_LISTED
        return ErasureList(
            erasures=[ErasureSummary.of(each) for each in found],
            next=found[-1].id if is_full else None,
        )

    @wire.get(_ERASURES + "/{id}", ERASE, "22.5", errors=(UnknownErasure,))
    def get_erasure(self, call: Call) -> ErasureReport:
        """Return the report of an erasure."""
        found = self.erasures.show(call.feed, call.id)
        if found is None:
            raise UnknownErasure("no such erasure of this feed", field="id", value=call.id)
        return self._report(call, found)

    def _report(self, call: Call, erasure: Erasure) -> ErasureReport:
        locations = self.reporter.locations(call.feed, erasure)
        return ErasureReport.of(erasure, locations=[LocationReport.of(each) for each in locations])
