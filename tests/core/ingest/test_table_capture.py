"""Writes in an owner's table are in the log once, in their order, or put aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.ingest.table_capture import Attributes, Capture, Capturer, Write
from tidings.core.log.append import Appender
from tidings.core.model.pages import Page

from tests.core.scene import FEED, NOW, Scene
from tests.fakes import MemoryOutbox

CAPTURE = Capture(FEED, "{{kind}}", "{{id}}")


def writes(names: str, kind: str = "video") -> list[Write]:
    """One for each letter."""
    item: Attributes = {"kind": kind}
    return [Write(f"e-{name}", "insert", {"id": name}, {}, item, NOW) for name in names]


def capturer(scene: Scene, outbox: MemoryOutbox | None = None) -> Capturer:
    return Capturer(CAPTURE, scene.appender, outbox or MemoryOutbox(), scene.count)


def pages(scene: Scene) -> list[str]:
    """The ids on each page, joined."""
    found = scene.reader.read(FEED, 0).pages
    return ["".join(json.loads(line)["id"] for line in page.lines) for page in found if page.body]


def test_what_is_told_together_is_one_page(scene: Scene) -> None:
    """In its order."""
    capturer(scene).run(writes("abc"))
    assert pages(scene) == ["abc"]
    assert scene.counted["WritesCaptured"] == 3


@pytest.mark.parametrize("again", [("abc",), ("ab",), ("abcde",), ("a", "abc", "abcd")])
def test_what_is_told_again_is_there_once(scene: Scene, again: tuple[str, ...]) -> None:
    """Fewer or more of them, from where the page began: only what is new is appended."""
    for names in ("abc", *again):
        capturer(scene).run(writes(names))
    assert "".join(pages(scene)) == max("abc", *again, key=len)


def test_an_answer_that_was_lost_repeats_nothing(scene: Scene) -> None:
    """The page was written, and the store did not say so."""

    class Lost(Appender):
        def append_once(self, feed: str, lines: Sequence[str], *named: Any) -> Page:
            super().append_once(feed, lines, *named)
            raise Unavailable("lost")

    real = scene.appender
    lossy = Lost(real.log, real.claims, real.clock, real.new_id, real.page_ms)
    with pytest.raises(Unavailable):
        replace(capturer(scene), appender=lossy).run(writes("abc"))
    capturer(scene).run(writes("abc"))
    assert pages(scene) == ["abc"]


def test_told_from_the_middle_the_rest_is_repeated_in_order(scene: Scene) -> None:
    """As after a crash: the last events may repeat, and the last of each object is the last."""
    for names in ("abcd", "ab", "cd"):
        capturer(scene).run(writes(names))
    assert pages(scene) == ["abcd", "cd"]


def test_what_no_operation_can_be_made_of_is_put_aside(scene: Scene) -> None:
    """Under the time and the id of the write, with the reason; the others are appended."""
    outbox = MemoryOutbox()
    bad = replace(writes("b")[0], after={})
    for _ in range(2):
        capturer(scene, outbox).run([*writes("a"), bad, *writes("c")])
    assert pages(scene) == ["ac"]
    reason = "type: needs each attribute of {{kind}} as one text or number"
    assert outbox.aside == {(FEED, f"{NOW}-e-b"): reason}
    assert scene.counted["WritesRefused"] == 2


def test_pages_hold_what_fits(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """By operations and by bytes, a write of two operations on one page; repeated, the same."""
    moved = Write("m", "update", {"id": "m"}, {"kind": "draft"}, {"kind": "video"}, NOW)
    monkeypatch.setattr(limits, "REQUEST_OPERATIONS_MAX", 3)
    for _ in range(2):
        capturer(scene).run([*writes("ab"), moved, *writes("c")])
    assert pages(scene) == ["ab", "mmc"]

    monkeypatch.setattr(limits, "CAPTURE_BYTES", 200)
    capturer(scene).run(writes("xyz"))
    assert pages(scene)[2:] == ["xy", "z"]


def test_a_capture_that_changed_meanwhile_ends(scene: Scene) -> None:
    """A write that had one operation and now has two is not looked for again and again."""
    moved = Write("m", "update", {"id": "m"}, {"kind": "draft"}, {"kind": "video"}, NOW)
    replace(capturer(scene), capture=Capture(FEED, "fixed", "{{id}}")).run([moved])
    capturer(scene).run([moved, *writes("a")])
    assert pages(scene) == ["m", "a"]
