"""Triton: items and objects as operations, and the first message of a listener."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, line, op, page
from tidings.core import limits
from tidings.core.auth.guard import ALL
from tidings.core.errors import (
    InvalidCursor,
    InvalidFilter,
    InvalidItem,
    InvalidOperation,
    InvalidRegistration,
    TooLarge,
)
from tidings.core.model.filters import Filter
from tidings.core.model.json_body import JSON_TYPE, lines_from
from tidings.core.settings.values import Resource
from tidings.core.triton.items import item_of, items_of, line_of, with_sub_resources
from tidings.core.triton.objects import ObjectReader
from tidings.core.triton.registration import V1, V2, Kind, Listener, Registered, looks_like, parse
from tidings.http.endpoints.browse import Registration

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


def reader(scene: Scene) -> ObjectReader:
    return ObjectReader(scene.state)


def listed(scene: Scene, kind: str = "") -> list[str]:
    """Return the objects of every page, one page after the other."""
    objects: list[str] = []
    after: str | None = ""
    while after is not None:
        page = reader(scene).page(FEED, kind, after, ALL)
        objects += page.objects
        after = page.after
    return objects


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("reads", [1, 64])
def test_every_object_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, most: int, reads: int
) -> None:
    """This holds for any page size; a type is not a prefix of others, and deleted objects are left
    out.
    """
    monkeypatch.setattr(limits, "OBJECTS_MAX", most)
    monkeypatch.setattr(limits, "OBJECTS_READS_MAX", reads)
    types = ("vm", "vm/x", "v", "vmx")
    operations: list[dict[str, Any]] = [
        op(f"{number}", type=kind) for kind in types for number in range(40)
    ]
    scene.post(*operations)
    scene.projected(op("3", "delete", type="vm"), op("new", type="vm"))
    assert len(listed(scene)) == len(set(listed(scene))) == 160
    assert len(listed(scene, "vm")) == 40
    assert len(listed(scene, "vm/x")) == 40
    assert all('"type":"vm"' in each for each in listed(scene, "vm"))
    assert listed(scene, "other") == []


@pytest.mark.parametrize("after", ["x", "64/a", "-1/a", "1", "٣/a", "1000/"])
def test_a_place_is_one_that_was_given(scene: Scene, after: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidCursor):
        reader(scene).page(FEED, "", after, ALL)


def test_one_object_is_told_by_its_id(scene: Scene) -> None:
    """It is the latest operation; unknown and deleted objects are missing. An id without a type is
    refused.
    """
    scene.post(op("a/1", type="v/m"), op("b", type="vm"), op("gone", "delete", type="vm"))
    scene.projected(op("b", type="vm", data=2))
    objects = reader(scene)
    assert objects.one(FEED, "v/m", "a/1", ALL).after is None
    assert len(objects.page(FEED, "", "", ALL).objects) == 2
    assert '"data":2' in objects.one(FEED, "vm", "b", ALL).objects[0]
    assert objects.one(FEED, "vm", "gone", ALL).objects == []
    assert objects.one(FEED, "v", "m/a/1", ALL).objects == []
    with pytest.raises(InvalidFilter, match="type"):
        objects.one(FEED, "", "b", ALL)


VM_NIC = {"vm": Resource("vm", ("nic",), "/vms")}
KIND = {"resource": "vm", "subResources": ["nic"]}


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ('{"instance":"i"}', True),
        ('{"changeKind":7}', True),
        ('{"resources":[]}', True),
        ('{"instance":"i","action":"subscribe"}', False),
        ('{"service":"s"}', False),
        ('["instance"]', False),
        ("instance", False),
        ("[" * 100_000, False),
    ],
)
def test_a_registration_is_known_by_its_fields(text: str, does: bool) -> None:
    """This is for handshakes without a protocol; a message with an action is never a
    registration."""
    assert looks_like(text) is does


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instance": "x" * 513}, "identifier"),
        ({"instance": "a\0b"}, "identifier"),
        ({"service": "x" * 1023}, "at most 1024 bytes"),
        ({"changeKind": {**KIND, "subResources": ["x" * 641]}}, "subResources"),
        ({"changeKind": {**KIND, "subResources": [7]}}, "subResources"),
        ({"changeKind": {**KIND, "subResources": list(map(str, range(101)))}}, "at most 100"),
        ({"changeKind": {**KIND, "subResources": [[[]] * 9] * 9}, "deep": []}, "subResources"),
    ],
)
def test_what_no_store_takes_is_refused(fields: dict[str, object], words: str) -> None:
    """Nothing is stored before that."""
    text = json.dumps({"instance": "i", "changeKind": KIND, **fields})
    with pytest.raises(InvalidRegistration, match=words):
        parse(text, Listener(V1, "main"), VM_NIC)


def test_a_text_that_is_too_long_is_not_read() -> None:
    """The limit is that of every message, 32 KiB."""
    with pytest.raises(InvalidRegistration, match="failed to parse v2"):
        parse(" " * (32 * 1024 + 1), Listener(V2, "main"), VM_NIC)


@pytest.mark.parametrize("service", ["tcns", None, 7, {"name": "tcns"}, "ä\ud800"])
def test_a_service_is_shown_as_it_was_said(service: object) -> None:
    """It is not validated; only people read it."""
    text = json.dumps({"instance": "", "service": service, "changeKind": KIND})
    listener = parse(text, Listener(V1, "main"), VM_NIC).listener
    registered = Registered("c", listener.instance, listener.service, Kind("vm", ("nic",)))
    shown = Registration.of(registered).document()
    assert shown == {"instance": "", "service": service, "changeKind": KIND}
