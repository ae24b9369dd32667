"""Serve the routes of erasures (PROTOCOL 22): request an erasure, list erasures, and show one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.auth.guard import KEY_PREFIX
from tidings.core.erasure.entries import parse_request
from tidings.core.erasure.records import Phase
from tidings.core.errors import InvalidOperation, Rejected
from tidings.core.ingest.ingest import check_key
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.core.model.json_body import object_from
from tidings.core.model.timestamps import from_ms
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.erasure.records import Erasure
    from tidings.core.erasure.service import Erasures, Location
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request

Document = dict[str, Any]
PENDING, ERASED, DONE = "pending", "erased", "done"


class InvalidErasure(Rejected, code="invalid_erasure"):
    """A field of a request for an erasure breaks its rule, or is unknown."""


class UnknownErasure(Rejected, code="unknown_erasure", status=404):
    """The feed has no erasure with this id."""


@dataclass(frozen=True, slots=True)
class ErasureRouter:
    """The endpoint of the routes of erasures."""

    guard: Guard
    feeds: FeedNames
    erasures: Erasures

    def __call__(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            Rejected: access is denied, the feed is chained, or a field is invalid.
            Unavailable: the erasure may be in the log; repeat the request with its Idempotency-Key.
        """
        feed = self.feeds.key(request.feed)
        allowed = NEEDS[request.route].admit(self.guard, feed, request.credential)
        if request.method == "POST":
            erasure = _request(self.erasures, feed, allowed, request)
            return json_answer(202, _describe(self.erasures, feed, erasure))
        if "id" not in request.parameters:
            return json_answer(200, _list(self.erasures, feed, request.query))
        found = self.erasures.show(feed, request.parameters["id"])
        if found is None:
            value = request.parameters["id"]
            raise UnknownErasure("no such erasure of this feed", field="id", value=value)
        return json_answer(200, _describe(self.erasures, feed, found))


def _list(erasures: Erasures, feed: str, query: Mapping[str, str]) -> Document:
    for name in sorted(query.keys() - {"after"}):
        raise InvalidErasure("is not known here; the only parameter is after", field=name)
    after = query.get("after", "")
    if after and not isinstance(cursors.parse_cursor(after), Place):
        raise InvalidErasure("must be the id of an erasure", field="after", value=after)
    found = erasures.list(feed, after)
    is_full = len(found) >= limits.ERASURES_LISTED
    return {
        "erasures": [erasure_document(each) for each in found],
        "next": found[-1].id if is_full else None,
    }


def _request(erasures: Erasures, feed: str, allowed: Allowed, request: Request) -> Erasure:
    given = request.headers.get("idempotency-key")
    key = None if given is None else allowed.namespaced_key(check_key(given))
    try:
        body = object_from(request.content(), InvalidErasure)
        entry = parse_request(body, by=caller(allowed, request.credential))
        return erasures.request(feed, entry, key)
    except InvalidOperation as error:
        raise InvalidErasure(error.rule, field=error.field, value=error.value) from None


def _describe(erasures: Erasures, feed: str, erasure: Erasure) -> Document:
    locations = map(location_document, erasures.locations(feed, erasure))
    return {**erasure_document(erasure), "locations": [*locations]}


def caller(allowed: Allowed, given: Credential | None) -> str:
    """Return the principal of a request as an erasure shows it, without a secret."""
    if given is None:
        return "anonymous"  # the feed is open
    if not allowed.principal:
        return "password"
    is_key = given.secret.startswith(KEY_PREFIX)
    return f"{'key' if is_key else 'token'} {allowed.principal}"


def erasure_document(erasure: Erasure) -> Document:
    """Return the report of an erasure without its locations."""
    is_done, is_erased = erasure.phase is Phase.DONE, erasure.reached(Phase.KEPT)
    return {
        "id": erasure.id,
        "object": {"type": erasure.type, "id": erasure.object_id or None},
        "state": DONE if is_done else ERASED if is_erased else PENDING,
        "found": erasure.has_found if is_erased else None,
        "by": erasure.by,
        "reason": erasure.reason,
        "parents": erasure.as_parent,
        "before": erasure.before or None,
        "requested_at": from_ms(erasure.requested_ms),
        "erased_at": from_ms(erasure.done_ms) if erasure.done_ms else None,
        "until": from_ms(erasure.until_ms),
    }


def location_document(location: Location) -> Document:
    return {
        "name": location.name,
        "status": location.status,
        "until": from_ms(location.until_ms) if location.until_ms else None,
        "note": location.note,
    }
