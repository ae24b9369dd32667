"""Changes: their ids, the rules of a posted change, and a change's line in the log as each API
reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, NOW, Scene, line, op, page
from tidings.core import limits
from tidings.core.changeagent import config
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
from tidings.core.changeagent.config import Configuration
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.changeagent.submit import Proposer
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.core.errors import (
    InvalidChange,
    InvalidKey,
    KeyReused,
    RefusedByHook,
    Rejected,
    TooLarge,
    UnknownFeed,
    WrongContentType,
)
from tidings.core.ingest.ingest import PostRequest
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


GOOD = PostRequest(FEED, b'{"data":{"a":1},"tags":["t"]}', "application/json")


class Proposing:
    def __init__(self, *verdicts: Verdict) -> None:
        self.scene = scene = Scene()
        self.verdicts, self.requests = verdicts, list[tuple[int, str]]()
        documents = MemoryOperatorDocuments()
        if verdicts:
            hooks = Configuration(hooks=(Hook("http://a"),) * len(verdicts))
            documents.write(
                FEED, CONFIGURATION, OperatorDocument(config.encode_configuration(hooks))
            )
        self.proposer = Proposer(
            appender=scene.appender,
            gate=gate(scene, documents),
            operator_documents=documents,
            ask=self._ask,
            counters=scene.counters,
            tracer=scene.host.tracer,
        )

    def _ask(self, hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        self.requests.append((len(hooks), data))
        return self.verdicts

    def lines(self) -> list[str]:
        return [line for page in self.scene.log.read(FEED, 0) for line in page.lines]


def test_a_change_is_appended_when_all_accept() -> None:
    """Webhooks get only the data; without webhooks no request is sent."""
    proposing = Proposing(Verdict(200), Verdict(204))
    assert proposing.proposer.accept(GOOD) == 1 << 10
    assert proposing.requests == [(2, '{"a":1}')]
    assert [is_change(line) for line in proposing.lines()] == [True]
    assert proposing.scene.counted["OperationsIngested"] == 1

    alone = Proposing()
    assert alone.proposer.accept(GOOD) == 1 << 10 and alone.requests == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"feed": "nope"}, UnknownFeed),
        ({"content_type": "application/jsonp"}, WrongContentType),
        ({"body": b"{"}, InvalidChange),
        ({"body": b'"' + b"x" * 70_000 + b'"'}, TooLarge),
        ({"key": ""}, InvalidKey),
    ],
)
def test_what_is_wrong_is_refused_before_any_hook_is_asked(
    changes: dict[str, Any], error: type[Rejected]
) -> None:
    """No number is taken; invalid operations are counted for the status."""
    proposing = Proposing(Verdict(200))
    with pytest.raises(error):
        proposing.proposer.accept(GOOD._replace(**changes))

    assert proposing.requests == [] and proposing.scene.log.head(FEED) == 0
    counted = error in (InvalidChange, TooLarge)
    assert proposing.scene.counters.totals(FEED, now_ms=0).refused == counted
    assert proposing.scene.counted["RequestsRejected"] == 1


def test_A30_what_a_hook_refuses_is_not_stored() -> None:
    """No page, and no number that readers would wait for."""
    proposing = Proposing(Verdict(200), Verdict(failure="gone"))
    with pytest.raises(RefusedByHook, match="Error 1: gone"):
        proposing.proposer.accept(GOOD)

    assert proposing.scene.log.head(FEED) == 0


def test_a_key_is_one_change() -> None:
    """A repeat appends nothing; with another body it is refused."""
    proposing = Proposing()
    keyed = GOOD._replace(key="k")

    assert proposing.proposer.accept(keyed) == proposing.proposer.accept(keyed)
    assert len(proposing.lines()) == 1
    with pytest.raises(KeyReused):
        proposing.proposer.accept(keyed._replace(body=b"2"))
