"""The latest operation of each object, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.scene import FEED, Scene, op
from tidings.core import limits
from tidings.core.auth.guard import ALL
from tidings.core.errors import InvalidCursor, InvalidFilter
from tidings.core.triton.objects import ObjectReader


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
