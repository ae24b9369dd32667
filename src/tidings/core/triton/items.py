"""
Items, which are operations in the form that listeners receive.

An item says that a resource changed, without the new content. The listener fetches the resource.
The type of an operation is the kind of resource, its object is the resource, and the field
`changed` names the changed sub-resources. An operation without `changed` concerns all declared
sub-resources, so that listeners receive the operations of every producer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidItem
from tidings.core.model import json_body
from tidings.core.model.operations import EVENTS, decode, line_from, parse_line, to_canonical_json
from tidings.core.settings.values import by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidings.core.model.filters import Filter
    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.settings.profiles import ProfileStore
    from tidings.core.settings.values import Resource

_OURS = ("changeKind", "changedResourceId", "published")
_UPDATE = "update"
KIND_MISSING = "changeKind object required on item to publish"
ID_MISSING = "changedResourceId required on item to publish"


def with_sub_resources(line: str, resources: Mapping[str, Resource]) -> Operation:
    """
    Return the operation in *line*, with the sub-resources that it concerns if its type is declared.
    """
    operation = parse_line(line)
    resource = resources.get(operation.type)
    if resource is None:
        return operation
    changed = json.loads(line).get("changed")
    return replace(operation, changed=resource.subs if changed is None else tuple(changed))


def item_of(line: str, operation: Operation, at_ms: int) -> str:
    """
    Return the item to send to a listener.

    *operation* is the result of `with_sub_resources` for *line*.

    *at_ms* is the time when the page was committed. It becomes the item's time of publication.
    """
    item: dict[str, Any] = {
        "changeKind": {"resource": operation.type, "subResources": list(operation.changed)},
        "changedResourceId": operation.id,
        "published": str(at_ms),
    }
    if operation.event != _UPDATE:
        item["event"] = operation.event
    data = decode(line).get("data")
    if isinstance(data, dict):
        item = {**data, **item}
    elif data is not None:
        item["data"] = data
    return to_canonical_json(item)


def items_of(
    pages: Iterable[Page], wanted: Filter, resources: Mapping[str, Resource]
) -> Iterator[str]:
    """Yield the items of *pages* that match *wanted*, in order."""
    for page in pages:
        for line in page.lines:
            operation = with_sub_resources(line, resources)
            if wanted.matches(operation):
                yield item_of(line, operation, page.at_ms)


def line_of(raw: object, resources: Mapping[str, Resource], *, now_ms: int, where: str = "") -> str:
    """
    Return the log's line for *raw*, one decoded JSON value from a publisher.

    Raises:
        InvalidItem: *raw* is not an item, or its resource is not declared.
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
    """
    Return the event of an item. Without the event `delete`, bootstraps would include the object.
    """
    event = raw.get("event", _UPDATE)
    if event not in EVENTS:
        rule = f"must be one of {', '.join(EVENTS)}"
        raise InvalidItem(rule, field=f"{where}event", value=event)
    return event


def _extra(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in (*_OURS, "event")}


class Items:
    """Implements `BodyParser` of `ingest.ingest` for bodies with items for a feed."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def __call__(self, feed: str, body: bytes, content_type: str, now_ms: int) -> list[str]:
        resources = by_name(self._profiles.profile(feed).resources)

        def line(raw: object, now_ms: int, where: str) -> str:
            return line_of(raw, resources, now_ms=now_ms, where=where)

        return json_body.lines_from(body, content_type, now_ms=now_ms, line_of=line)
