"""Items, which are operations in the form that listeners (clients of Triton's protocol) receive.

An item names the object that changed. It need not have the new content, because a listener can
fetch the object. In an item, the type of the operation is called the resource, and the values of
the operation's field `changed` are called sub-resources. An operation without `changed` concerns
all sub-resources that the feed declares for the type, so that listeners receive the operations of
every producer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidings.core.errors import InvalidItem
from tidings.core.model import json_body
from tidings.core.model.operations import (
    EVENTS,
    decode,
    line_from,
    parse_line,
    to_canonical_json,
    without_details,
)
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
    """Return the operation in *line*; set `changed` if its type is a declared resource."""
    operation = parse_line(line)
    resource = resources.get(operation.type)
    if resource is None:
        return operation
    changed = json.loads(line).get("changed")
    return replace(operation, changed=resource.subs if changed is None else tuple(changed))


def item_of(line: str, operation: Operation, at_ms: int) -> str:
    """Return the item to send to a listener.

    *operation* is the result of `with_sub_resources` for *line*. *at_ms* is the commit time of the
    page, which becomes the time of publication in the item.
    """
    item: dict[str, Any] = {
        "changeKind": {"resource": operation.type, "subResources": list(operation.changed)},
        "changedResourceId": operation.id,
        "published": str(at_ms),
    }
    if operation.event != _UPDATE:
        item["event"] = operation.event
    data = decode(without_details(line)).get("data")
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
    """Return the log's line for *raw*, one decoded JSON value from a publisher.

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
    extra = {name: value for name, value in raw.items() if name not in (*_OURS, "event")}
    event = raw.get("event", _UPDATE)
    if event not in EVENTS:
        rule = f"must be one of {', '.join(EVENTS)}"
        raise InvalidItem(rule, field=f"{where}event", value=event)
    return line_from(
        {
            "event": event,
            "type": kind["resource"],
            "id": raw["changedResourceId"],
            "changed": kind["subResources"],
            "data": extra or None,
        },
        now_ms=now_ms,
        where=where,
    )


class Items:
    """An implementation of `BodyParser` in `ingest.ingest` for bodies that contain items."""

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles

    def __call__(self, feed: str, body: bytes, content_type: str, now_ms: int) -> list[str]:
        resources = by_name(self._profiles.profile(feed).resources)

        def line(raw: object, now_ms: int, where: str) -> str:
            return line_of(raw, resources, now_ms=now_ms, where=where)

        return json_body.lines_from(body, content_type, now_ms=now_ms, line_of=line)
