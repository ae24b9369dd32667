"""Writes in an owner's table are in the log once, in their order, or put aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import MemoryOutbox
from tests.unit.core.scene import FEED, NOW, Scene
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.ingest.table_capture import Attributes, Capture, Capturer, Write
from tidings.core.log.append import Appender
from tidings.core.model.pages import Page

CAPTURE = Capture(FEED, "{{kind}}", "{{id}}")


def writes(names: str, kind: str = "video") -> list[Write]:
    """Return one write for each letter."""
    item: Attributes = {"kind": kind}
    return [Write(f"e-{name}", "insert", {"id": name}, {}, item, NOW) for name in names]


def capturer(scene: Scene, outbox: MemoryOutbox | None = None) -> Capturer:
    return Capturer(CAPTURE, scene.appender, outbox or MemoryOutbox(), scene.count)


def pages(scene: Scene) -> list[str]:
    """Return the ids on each page, joined."""
    read = scene.reader.read(FEED, 0).pages
    return ["".join(json.loads(line)["id"] for line in page.lines) for page in read if page.body]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (["abc"], ["abc"]),
        (["abc", "abc"], ["abc"]),
        (["abc", "ab"], ["abc"]),
        (["abc", "abcde"], ["abc", "de"]),
        (["abc", "a", "abc", "abcd"], ["abc", "d"]),
        (["abcd", "ab", "cd"], ["abcd", "cd"]),
    ],
)
def test_what_comes_together_is_one_page(
    scene: Scene, batches: list[str], expected: list[str]
) -> None:
    """Repeated from where the page began, fewer or more, only what is new is appended; from its
    middle, as after a crash, the rest repeats, and the last of each object is the last.
    """
    for names in batches:
        capturer(scene).run(writes(names))
    assert pages(scene) == expected
    assert scene.counted["WritesCaptured"] == len("".join(batches))


def test_an_answer_that_was_lost_repeats_nothing(scene: Scene) -> None:
    """The page was written, but the answer was lost."""

    class Lost(Appender):
        def append_once(self, feed: str, lines: Sequence[str], *named: Any) -> Page:
            super().append_once(feed, lines, *named)
            raise Unavailable("lost")

    real = scene.appender
    lossy = Lost(log=real.log, claims=real.claims, runtime=real.runtime)
    with pytest.raises(Unavailable):
        replace(capturer(scene), appender=lossy).run(writes("abc"))
    capturer(scene).run(writes("abc"))
    assert pages(scene) == ["abc"]


def test_what_no_operation_can_be_made_of_is_put_aside(scene: Scene) -> None:
    """It is stored under the time and the id of the write, with the reason; the others are
    appended."""
    outbox = MemoryOutbox()
    bad = replace(writes("b")[0], after={})
    for _ in range(2):
        capturer(scene, outbox).run([*writes("a"), bad, *writes("c")])
    assert pages(scene) == ["ac"]
    reason = "type: needs each attribute of {{kind}}, with one string or number as its value"
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
    """A write that had one operation and now has two is not searched for again and again."""
    moved = Write("m", "update", {"id": "m"}, {"kind": "draft"}, {"kind": "video"}, NOW)
    replace(capturer(scene), capture=Capture(FEED, "fixed", "{{id}}")).run([moved])
    capturer(scene).run([moved, *writes("a")])
    assert pages(scene) == ["m", "a"]
