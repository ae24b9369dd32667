"""Writes in an owner's table are in the log once, in their order, or put aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.fakes import MemoryOutbox
from tests.unit.core.scene import FEED, NOW, Scene
from tidings.core import limits
from tidings.core.errors import InvalidFeed, InvalidOperation, InvalidSetting, TooLarge, Unavailable
from tidings.core.ingest import table_capture
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


AT_MS = 1_763_000_000_000
AT = "2025-11-13T02:13:20Z"
VIDEOS = Capture("main", "video", "{{id}}", ("user/{{owner}}", "tag/{{tags}}"), "updated")


def write(
    event: str = "update", before: Attributes | None = None, after: Attributes | None = None
) -> Write:
    return Write("e1", event, {"id": "x32"}, before or {}, after or {}, AT_MS)


def operations(capture: Capture, written: Write) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture.lines_of(written)]


@pytest.mark.parametrize("event", ["insert", "update", "delete"])
def test_a_write_is_one_operation(event: str) -> None:
    """Its parents come from the item, one for each value of a list; its timestamp is the time of
    the write.
    """
    item: Attributes = {"id": "x32", "owner": "ann", "tags": ("b", "a", "b")}
    before, after = ({}, item) if event != "delete" else (item, {})

    assert operations(VIDEOS, write(event, before, after)) == [
        {
            "event": event,
            "timestamp": AT,
            "parents": ["user/ann", "tag/b", "tag/a"],
            "type": "video",
            "id": "x32",
        }
    ]


def test_parents_that_an_item_lacks_are_left_out() -> None:
    """Attributes are optional in DynamoDB, and a stream may have only the keys."""
    assert operations(VIDEOS, write())[0]["parents"] == []


def test_an_attribute_may_be_the_time() -> None:
    """It is used if the item has it; a deleted item has only the time of its last change."""
    item: Attributes = {"updated": "2026-01-02T03:04:05+01:00"}

    assert operations(VIDEOS, write("update", {}, item))[0]["timestamp"] == "2026-01-02T02:04:05Z"
    assert operations(VIDEOS, write("delete", item, {}))[0]["timestamp"] == AT
    with pytest.raises(InvalidOperation, match="timestamp: must be an RFC 3339 date-time"):
        VIDEOS.lines_of(write("update", {}, {"updated": "1763000000"}))


def test_the_type_may_be_an_attribute() -> None:
    """A table may hold several; an item without one is refused."""
    capture = Capture("main", "{{kind}}", "{{id}}")

    assert operations(capture, write("insert", {}, {"kind": "Video"}))[0]["type"] == "video"
    for kind in ({}, {"kind": ("a", "b")}):
        with pytest.raises(InvalidOperation, match="type: needs each attribute"):
            capture.lines_of(write("insert", {}, kind))  # type: ignore[arg-type]


def test_an_object_of_another_type_is_another_object() -> None:
    """The earlier object is deleted, unless the stream does not have the earlier values."""
    capture = Capture("main", "{{kind}}", "{{id}}", ("user/{{owner}}",))
    before: Attributes = {"kind": "draft", "owner": "ann"}
    after: Attributes = {"kind": "video", "owner": "bob"}

    def short(written: Write) -> list[tuple[str, str, list[str]]]:
        return [
            (each["event"], each["type"], each["parents"]) for each in operations(capture, written)
        ]

    assert short(write("update", before, after)) == [
        ("delete", "draft", ["user/ann"]),
        ("insert", "video", ["user/bob"]),
    ]
    assert short(write("update", {}, after)) == [("update", "video", ["user/bob"])]
    assert short(write("update", before, before)) == [("update", "draft", ["user/ann"])]


def test_an_id_is_made_of_the_key() -> None:
    """An item then remains one object; other attributes are refused."""
    with pytest.raises(InvalidOperation, match="id: needs each attribute of"):
        Capture("main", "video", "{{owner}}").lines_of(write("update", {}, {"owner": "ann"}))


def test_two_items_are_never_one_object() -> None:
    """For any values of the key's two parts the ids differ, or are refused."""
    capture = Capture("main", "video", "v{{a}}::{{b}}/")
    texts = ["".join(each) for n in (1, 2, 3) for each in product("a:", repeat=n)]
    named: dict[str, tuple[str, str]] = {}
    for a, b in product(texts, repeat=2):
        try:
            (operation,) = operations(capture, Write("e", "update", {"a": a, "b": b}, {}, {}, 1))
        except InvalidOperation:
            continue
        assert operation["id"] not in named, (named[operation["id"]], (a, b))
        named[operation["id"]] = (a, b)
    assert len(named) > 50


def test_a_placeholder_in_a_value_is_text() -> None:
    """Templates are filled in one pass."""
    capture = Capture("main", "video", "{{id}}", ("u/{{a}}/{{b}}",))
    item: Attributes = {"a": "{{b}}", "b": "1"}

    assert operations(capture, write("update", {}, item))[0]["parents"] == ["u/{{b}}/1"]


def test_what_breaks_a_rule_of_operations_is_refused() -> None:
    """The limits of posted operations apply to captured ones."""
    item: Attributes = {"tags": tuple(map(str, range(65)))}
    with pytest.raises(TooLarge, match="parents: holds at most 64 entries"):
        VIDEOS.lines_of(write("update", {}, item))


def test_a_capture_is_written_as_json() -> None:
    """Feed, parents and timestamp may be left out."""
    text = '{"feed":"f","type":"{{k}}","id":"{{a}}/{{b}}","parents":["p/{{c}}"],"timestamp":"t"}'

    assert table_capture.parse(text) == Capture("f", "{{k}}", "{{a}}/{{b}}", ("p/{{c}}",), "t")
    assert table_capture.parse('{"type":"v","id":"{{a}}"}') == Capture("main", "v", "{{a}}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "capture: must be JSON"),
        ("[]", "capture: must be a JSON object"),
        ('{"id":"{{a}}"}', "type: is required"),
        ('{"type":"v"}', "id: is required"),
        ('{"type":"v","id":"a"}', "id: needs the attributes of the key, as {{name}}"),
        ('{"type":"v","id":"{{a}}{{b}}"}', "and text between any two"),
        ('{"type":1,"id":"{{a}}"}', "type: must be a string"),
        ('{"type":"v","id":"{{a}}","parents":"p"}', "parents: must be an array of strings"),
        ('{"type":"v","id":"{{a}}","tags":[]}', "tags: is not a known field; the fields are feed"),
    ],
)
def test_a_capture_with_a_mistake_is_refused(text: str, sentence: str) -> None:
    """It is refused before it is deployed."""
    with pytest.raises(InvalidSetting) as caught:
        table_capture.parse(text)
    assert sentence in str(caught.value)


def test_a_capture_names_a_feed() -> None:
    """The rules of feed names apply."""
    with pytest.raises(InvalidFeed):
        table_capture.parse('{"feed":"No","type":"v","id":"{{a}}"}')
