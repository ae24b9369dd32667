"""
Items: operations as listeners know them. An item says that something about a resource changed,
not what; whoever hears it fetches the resource.

A resource is a type, a changed resource an object, its sub-resources what `changed` names. An
operation that names none concerns all that are declared, so that no producer can be missed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidItem
from tidings.core.model import json_body
from tidings.core.model.operations import EVENTS, encoded, line_from, parse_line
from tidings.core.settings.resources import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidings.core.model.filters import Filter
    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.settings.resources import Resource

_OURS = ("changeKind", "changedResourceId", "published")
_UPDATE = "update"
KIND_MISSING = "changeKind object required on item to publish"
ID_MISSING = "changedResourceId required on item to publish"


def concerned(line: str, resources: Mapping[str, Resource]) -> Operation:
    """The operation in *line*, with the sub-resources it concerns; none where undeclared."""
    operation = parse_line(line)
    resource = resources.get(operation.type)
    if resource is None:
        return operation
    changed = json.loads(line).get("changed")
    return replace(operation, changed=resource.subs if changed is None else tuple(changed))


def item_of(line: str, operation: Operation, at_ms: int) -> str:
    """
    The item that a listener is sent; *operation* is *line* as `concerned` has it.

    *at_ms* is when the page was committed, which is when the item was published.
    """
    item: dict[str, Any] = {
        "changeKind": {"resource": operation.type, "subResources": list(operation.changed)},
        "changedResourceId": operation.id,
        "published": str(at_ms),
    }
    if operation.event != _UPDATE:
        item["event"] = operation.event
    data = json.loads(line).get("data")
    if isinstance(data, dict):
        item = {**data, **item}
    elif data is not None:
        item["data"] = data
    return encoded(item)


def items_of(
    pages: Iterable[Page], wanted: Filter, resources: Mapping[str, Resource]
) -> Iterator[str]:
    """Those of *pages* that a listener wants, in order."""
    for page in pages:
        for line in page.lines:
            operation = concerned(line, resources)
            if wanted.matches(operation):
                yield item_of(line, operation, page.at_ms)


def line_of(raw: object, resources: Mapping[str, Resource], *, now_ms: int, where: str = "") -> str:
    """
    The log's line for *raw*, one decoded JSON value that a publisher sent.

    Raises:
        InvalidItem: it is no item, or its resource is not declared.
        InvalidOperation, TooLarge: an id or a sub-resource breaks its rule.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("changeKind"), dict):
        raise InvalidItem(KIND_MISSING)
    if raw.get("changedResourceId") is None:
        raise InvalidItem(ID_MISSING)
    kind = raw["changeKind"]
    if not isinstance(kind.get("resource"), str) or kind["resource"] not in resources:
        raise InvalidItem(f"unknown resource: {kind.get('resource')}")
    if not isinstance(kind.get("subResources"), list):
        raise InvalidItem("must be an array of strings", field=f"{where}subResources")
    return line_from(
        {
            "event": _event(raw, where),
            "type": kind["resource"],
            "id": raw["changedResourceId"],
            "changed": kind["subResources"],
            "data": _extra(raw) or None,
        },
        now_ms=now_ms,
        where=where,
    )


def _event(raw: Mapping[str, Any], where: str) -> object:
    """A publisher that deletes says so, so that no bootstrap tells the resource any more."""
    event = raw.get("event", _UPDATE)
    if event not in EVENTS:
        rule = f"must be one of {', '.join(EVENTS)}"
        raise InvalidItem(rule, field=f"{where}event", value=event)
    return event


def _extra(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in (*_OURS, "event")}


class Items:
    """Implements `Lines` of `ingest.ingest`: the body of a request as items for a feed."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def __call__(self, feed: str, body: bytes, content_type: str, *, now_ms: int) -> list[str]:
        resources = declared(self._profiles.profile(feed).resources)

        def line(raw: object, *, now_ms: int, where: str) -> str:
            return line_of(raw, resources, now_ms=now_ms, where=where)

        return json_body.lines_from(body, content_type, now_ms=now_ms, line_of=line)
