"""Changes: their ids, the rules of a posted change, and a change's line in the log as each API
reads it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, op, page
from tidings.core import limits
from tidings.core.changeagent.changes import (
    Change,
    change_from,
    end_of,
    entry_of,
    line_of,
    may_hold,
    number_of,
    place_of,
    tags_of,
)
from tidings.core.errors import InvalidChange, TooLarge
from tidings.core.model.operations import data_of, is_change, line_from, parse_line
from tidings.core.state.rows import project

PAGES = st.integers(1, 2**40 - 1)
SLOTS = st.integers(0, limits.REQUEST_OPERATIONS_MAX - 1)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=5,
)


@given(PAGES, SLOTS, PAGES, SLOTS)
def test_ids_ascend_as_places_do(page_a: int, slot_a: int, page_b: int, slot_b: int) -> None:
    """Ids stay below 2**53, which a double represents exactly; an id maps back to its place."""
    first, second = number_of(page_a, slot_a), number_of(page_b, slot_b)

    assert (first < second) == ((page_a, slot_a) < (page_b, slot_b))
    assert 0 < first < 2**53
    assert place_of(first) == (page_a, slot_a)
    assert number_of(page_a - 1, limits.REQUEST_OPERATIONS_MAX - 1) < first <= end_of(page_a)
    assert end_of(page_a) < number_of(page_a + 1, 0)


def test_the_start_is_zero() -> None:
    """Before the first page, which begins above it."""
    assert end_of(0) == 0


@given(JSON, st.lists(TEXTS, max_size=4))
def test_a_change_comes_back_as_it_was_posted(data: Any, tags: list[str]) -> None:
    """Through the log and out again; consumers of operations find it well formed."""
    body = json.dumps({"data": data, "tags": tags}).encode()
    kept = line_of(change_from(body), name="n", now_ms=NOW)
    change = json.loads(entry_of(kept, number=9, at_ms=NOW))

    assert change["data"] == data and change.get("tags", []) == tags
    assert (change["_id"], change["_ts"]) == (9, NOW * 1_000_000)
    assert is_change(kept) and "\n" not in kept
    operation = parse_line(kept)
    assert (operation.event, operation.type, operation.id) == ("insert", "change", "n")
    assert operation.parents == tuple(tags)
    assert json.loads(data_of(kept))["data"] == data


@pytest.mark.parametrize(
    "data",
    [{"change": True}, ',"change":true}', {"a": ',"change":true}'}, {"x": {"change": True}}, None],
)
def test_no_producer_of_operations_can_make_a_change(data: Any) -> None:
    """The state leaves changes out; an operation must not get out of it by a trick."""
    forged = [
        line_from({**op(), "data": data, "change": True}, now_ms=NOW),
        line_from({**op("x\u2028"), "type": "change"}, now_ms=NOW),
        line_from({**op(',"change":true}'), "tags": [',"change":true}']}, now_ms=NOW),
    ]

    assert not any(map(is_change, forged))


def test_the_state_leaves_changes_out() -> None:
    """Changes have no object; operations on the same page keep their slots."""
    kept = line_of(Change("1", ("t",)), name="n", now_ms=NOW)
    rows = project([page(1, kept, line("x1"), kept)], tombstone_ms=0)

    assert [(row.key, row.slot) for row in rows] == [("video/x1", 1)]


def test_an_operation_is_tagged_by_what_it_is_about() -> None:
    """Its type, its parents, its own tags; once each, in this order. Its data is all of it."""
    kept = line("x1", parents=["p", "video", "q"], tags=["q", "t"])

    assert tags_of(kept) == ["video", "p", "q", "t"]
    assert json.loads(entry_of(kept, number=1, at_ms=0))["data"] == json.loads(kept)


@given(TEXTS, TEXTS)
def test_a_line_is_only_parsed_where_a_tag_may_be(tag: str, other: str) -> None:
    """A line that `may_hold` rejects does not have the tag, whatever its letters."""
    kept = line_of(Change("1", (tag,)), name="n", now_ms=NOW)

    assert may_hold(kept, [tag]) and may_hold(kept, [other, tag])
    assert may_hold(kept, [other]) or other not in tags_of(kept)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"{", "Invalid JSON"),
        (b"[" * 50 + b"]" * 50, "Invalid JSON"),
        (b'{"data":1,"tags":{}}', "tags: must be an array"),
        (b'{"data":1,"tags":["a",""]}', r"tags\[1\]: must not be empty"),
        (b'{"data":"\\ud800"}', "data: must not contain a lone surrogate"),
        (b"1e999", "data: must not hold a number"),
    ],
)
def test_what_breaks_a_rule_is_named(body: bytes, rule: str) -> None:
    """The field and the rule; for JSON in changeagent's words."""
    with pytest.raises(InvalidChange, match=rule):
        change_from(body)


def test_a_change_is_bounded_as_an_operation_is() -> None:
    """In tags, in bytes of the request and as a line of the log."""
    with pytest.raises(TooLarge):
        change_from(b" " * (limits.REQUEST_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        change_from(json.dumps({"data": 1, "tags": ["t"] * (limits.PARENTS_MAX + 1)}).encode())
    with pytest.raises(TooLarge):
        line_of(Change('"' + "x" * limits.OPERATION_BYTES_MAX + '"'), name="n", now_ms=NOW)


@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_data_keep_their_spelling(value: Any, indent: Any, ascii_only: bool) -> None:
    """Alone or in an object, in blanks and names; only line breaks between tokens change."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    change = change_from(f' {{"tags" : ["t"],\n"daTa" : {text} }}'.encode())

    assert json.loads(change.data) == value
    assert change.tags == ("t",)
    escaped = {0x2028: "\\u2028", 0x2029: "\\u2029", 0x85: "\\u0085", ord("\n"): " "}
    assert change.data == text.translate(escaped)
    shown = entry_of(line_of(change, name="n", now_ms=NOW), number=1, at_ms=NOW)
    assert shown.endswith(f'"data":{change.data}}}')


@pytest.mark.parametrize(
    ("body", "data", "tags"),
    [
        (b'{"data":1,"DATA":[2],"tags":["a"],"Tags":["b"]}', "[2]", ("b",)),
        (b'{"Tags":["a"]}', '{"Tags":["a"]}', ()),
        (b'{"x":{"data":1},"_ID":"\\"data\\":2"}', "null", ()),
        (b'{"d\\u0061ta":{"a":1,"a":2}}', '{"a":1,"a":2}', ()),
    ],
)
def test_the_last_of_a_name_counts_in_any_case(
    body: bytes, data: str, tags: tuple[str, ...]
) -> None:
    """Names are compared as Go's encoding/json does; those inside values mean nothing."""
    assert change_from(body) == Change(data, tags)
