"""The routes for an operator's corrections, and for the rows that a sync compares (PROTOCOL 18)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tidings.core import errors, limits
from tidings.core.auth.guard import ADMIN, READ_ALL
from tidings.core.errors import InvalidSync, WrongContentType, parse_integer
from tidings.core.model.json_body import NDJSON_TYPE, check_size
from tidings.core.model.operations import check_text
from tidings.http import wire
from tidings.http.log_routes import Operation, lines_of
from tidings.http.wire import Call, Example, Fields, Given, Kind, Ms

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.sync.apply import Corrector

_CORRECTIONS = "/feeds/{feed}/corrections"
_PAGE_MAX = 2**40 - 1  # a page number has ten hex digits in an event id
_LINES = lines_of(Operation, '{"event":"delete","type":"order","id":"o-1024"}\n')


_THROUGH = {
    **wire.INTEGER,
    "description": "the page up to which the state was complete",
    "required": True,
}


def _parse_page(text: str) -> int:
    try:
        return parse_integer(text, 0, _PAGE_MAX)
    except ValueError:
        rule = "must be the page that the state had reached when the plan was made"
        raise InvalidSync(rule, field="through", value=text) from None


def _parse_keys(value: Any, name: str) -> list[str]:
    most = limits.LOOKUP_KEYS_MAX
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise ValueError(f"must be a list of 1 to {most} keys of objects")
    for at, key in enumerate(value):
        check_text(key, f"{name}[{at}]", limits.STATE_KEY_BYTES_MAX)
    if len(set(value)) < len(value):
        raise ValueError("must not contain a key twice")
    return value


class ObjectKeys(Given):
    keys: Annotated[
        list[str],
        Kind(
            {
                "type": "array",
                "items": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": limits.STATE_KEY_BYTES_MAX,
                },
                "minItems": 1,
                "maxItems": limits.LOOKUP_KEYS_MAX,
                "uniqueItems": True,
            },
            _parse_keys,
            shown=False,
        ),
        Example(["order/o-1024"]),
    ]


class CorrectionReport(Fields):
    applied: Annotated[int, Example(2)]
    moved: int
    done: Annotated[int, Example(1)]
    behind: Annotated[int, Example(3)]
    complete: Annotated[bool, Example(value=True)]


class ObjectRow(Fields, name=""):
    key: str
    page: int
    slot: int
    at_ms: Ms
    line: str
    expires_ms: int


class ObjectRows(Fields):
    state: Annotated[int, Example(42)]
    rows: Annotated[list[ObjectRow], Example([])]
    count: Annotated[int, Example(1)]


@dataclass(frozen=True)
class Corrections(wire.Routes, function="amend", error=InvalidSync):
    """The endpoint of the routes of corrections."""

    guard: Guard
    corrector: Corrector

    @wire.post(
        _CORRECTIONS,
        ADMIN,
        "18",
        query={"through": _THROUGH},  # parsed after the body
        body=((NDJSON_TYPE, _LINES),),
        errors=(
            InvalidSync,
            errors.InvalidOperation,
            errors.PlanTooOld,
            errors.Chained,
            errors.Yielded,
        ),
    )
    def apply_corrections(self, call: Call) -> CorrectionReport:
        """Apply corrections of a sync.

        Corrections before an invalid one may have been applied. The request can be repeated.
        """
        request = call.request
        if request.media_type != NDJSON_TYPE:
            given = request.headers.get("content-type", "")
            raise WrongContentType(f"must be {NDJSON_TYPE}", field="Content-Type", value=given)
        body = request.content()
        check_size(body)
        through = _parse_page(request.query.get("through", ""))
        run_ms, lines = limits.AMEND_RUN_MS, body.splitlines()
        report = self.corrector.apply(call.feed, through, lines, run_ms=run_ms)
        return CorrectionReport.copy_of(report)

    @wire.post(
        _CORRECTIONS + "/rows", READ_ALL, "18.7", errors=(InvalidSync, errors.InvalidOperation)
    )
    def look_up_rows(self, call: Call, body: ObjectKeys) -> ObjectRows:
        """Return rows of some objects."""
        found = self.corrector.look(call.feed, body.keys)
        return ObjectRows.copy_of(found, rows=[ObjectRow.copy_of(each) for each in found.rows])
