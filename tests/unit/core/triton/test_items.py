"""Items and operations are each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.core.scene import NOW, line, page
from tidings.core.errors import InvalidItem, InvalidOperation, TooLarge
from tidings.core.model.filters import Filter
from tidings.core.model.json_body import JSON_TYPE, lines_from
from tidings.core.settings.values import Resource
from tidings.core.triton.items import item_of, items_of, line_of, with_sub_resources

VM = {"vm": Resource("vm", ("nic", "alias"), "/vms")}


def item(**more: Any) -> dict[str, Any]:
    kind = {"resource": "vm", "subResources": ["nic"]}
    return {"changeKind": kind, "changedResourceId": "x1", **more}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"event": "delete"},
        {"note": {"a": [None]}, "type": "t", "id": 7},
        {"data": [1]},
        {"n": None},
    ],
)
def test_an_item_comes_back_as_it_was_published(more: dict[str, Any]) -> None:
    """The item has all its fields, and the commit time of its page."""
    written = line_of(item(**more, published="no"), VM, now_ms=NOW)
    received = json.loads(item_of(written, with_sub_resources(written, VM), NOW + 1))
    assert received == item(**more, published=str(NOW + 1))


def test_the_numbers_of_an_item_keep_their_digits() -> None:
    """They come back as they were published, also if no double has as many digits."""
    (written,) = lines_from(
        b'{"event":"update","type":"vm","id":"a","data":{"x":3.14159265358979323846,"y":1e-400}}',
        JSON_TYPE,
        now_ms=NOW,
    )
    received = item_of(written, with_sub_resources(written, VM), NOW)
    assert received.startswith('{"x":3.14159265358979323846,"y":1e-400,')


@pytest.mark.parametrize(
    ("fields", "subs"),
    [({}, ("nic", "alias")), ({"changed": []}, ()), ({"changed": ["x"]}, ("x",))],
)
def test_an_operation_concerns_sub_resources(fields: dict[str, Any], subs: tuple[str, ...]) -> None:
    """They are the ones it names, or all declared ones; operations of another type have none."""
    assert with_sub_resources(line("x1", type="vm", **fields), VM).changed == subs
    assert with_sub_resources(line("x1", **fields), VM).changed == ()


def test_items_of_pages_come_in_order() -> None:
    """Each operation that the filter matches gives one item."""
    wanted = Filter(kinds=frozenset({("vm", "nic"), ("vm", "alias")}))
    pages = [page(1, line("a", type="vm"), line("b")), page(2, line("c", type="vm", changed=["x"]))]
    assert [json.loads(text)["changedResourceId"] for text in items_of(pages, wanted, VM)] == ["a"]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (item(changedResourceId=None), InvalidItem),
        (item(changedResourceId=7), InvalidOperation),
        (item(changedResourceId="x" * 513), TooLarge),
        (item(event="gone"), InvalidItem),
        (item(changeKind={"resource": "vm"}), InvalidItem),
        (item(changeKind={"resource": "vm", "subResources": [7]}), InvalidOperation),
        (item(changeKind={"resource": ["vm"], "subResources": []}), InvalidItem),
    ],
)
def test_what_is_no_item_is_refused(raw: dict[str, Any], error: type[Exception]) -> None:
    """Each rule has its own error."""
    with pytest.raises(error):
        line_of(raw, VM, now_ms=NOW)
