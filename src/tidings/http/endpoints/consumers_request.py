"""Parse the requests of named consumers; unknown fields are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.consumers.service import Acknowledgement, Reason, reason_from
from tidings.core.errors import InvalidConsumer, whole_in
from tidings.core.model.cursors import Place
from tidings.core.model.json_body import object_from

if TYPE_CHECKING:
    from tidings.http.request import Request

Body = Mapping[str, Any]


class Asked:
    """A request of a worker or operator."""

    def __init__(self, request: Request) -> None:
        self.parameters, self.query, self.feed = request.parameters, request.query, request.feed
        self.name = self.parameters.get("name", "")
        self.credential = request.credential
        self._content = request.content
        self._user = self.credential.user if self.credential else ""

    def fields(self, *known: str) -> Mapping[str, Any]:
        """
        Return the body, in which only the fields *known* are allowed; an empty body has no fields.

        Raises:
            InvalidConsumer, InvalidOperation: the body has another field, or is not a JSON object.
        """
        body = object_from(self._content(), InvalidConsumer)
        for name in body:
            if name not in known:
                rule = f"is not known here; there are {', '.join(known)}"
                raise InvalidConsumer(rule, field=name)  # without the value, which may be a secret
        return body

    def check_query(self, *known: str) -> None:
        for name in self.query:
            if name not in known:
                rule = f"is not known here; there are {', '.join(known)}"
                raise InvalidConsumer(rule, field=name)

    def reason(self, *others: str) -> Reason:
        body = self.fields("why", "by", *others)
        return reason_from(self.who(body), body.get("why"))

    def who(self, body: Body) -> str:
        """Return the name that the operator gave, or the user of HTTP Basic."""
        given = body.get("by", self._user)
        if not isinstance(given, str) or not given:
            raise InvalidConsumer("must say who asks", field="by", value=given)
        return given

    def limit(self) -> int:
        most = limits.LOG_ENTRIES_MAX
        return whole_in(self.query.get("limit", str(most)), "limit", 1, most, InvalidConsumer)


def acknowledgement(body: Body) -> Acknowledgement:
    ids, retried = _list(body, "ids"), _list(body, "retried")
    return Acknowledgement(
        through=position.given(body["through"], "through") if "through" in body else None,
        ids=tuple(_entries(ids)),
        sending=position.given(body["sending"], "sending") if "sending" in body else None,
        retried=tuple(dict.fromkeys(retried)),
    )


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
        rule = "must be the number that came with the lease"
        raise InvalidConsumer(rule, field="fence", value=number)
    return number


def text(body: Body, field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidConsumer("must be a text", field=field, value=value)
    return value
