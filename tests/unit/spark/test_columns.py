"""Lines of the log as Arrow batches."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StructField, StructType

from tidings.core.changeagent import changes
from tidings.core.changeagent.changes import Change
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.model import filters
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.operations import ERASED_MARK, line_from, parse_line
from tidings.core.model.pages import Page
from tidings.spark import columns
from tidings.spark.columns import Piece, of_page
from tidings.spark.options import WrongColumn

ALL = columns.SCHEMA.names
AT_MS = 1767225600123
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def table(lines: list[str], names: list[str] = ALL, wanted: Any = EVERYTHING) -> list[Any]:
    piece = of_page(Page(3, "\n".join(lines), "", AT_MS))
    found = list(columns.batches([piece], names, wanted))
    return pa.Table.from_batches(found).to_pylist() if found else []


def line(**fields: Any) -> str:
    given = {"event": "update", "type": "video", "id": "x", **fields}
    return line_from(given, now_ms=AT_MS)


def test_a_page_that_was_copied_in_part_keeps_its_slots() -> None:
    """Each operation has the id that it has at the master."""
    whole = Page(3, "\n".join(line(id=each) for each in "abc"), "", AT_MS)
    some = whole.only([(0, whole.lines[0]), (2, whole.lines[2])])

    (found,) = columns.batches([of_page(some)], ["id", "slot", "cursor"], EVERYTHING)

    rows = [(row["id"], row["slot"], row["cursor"]) for row in found.to_pylist()]
    assert rows == [(id, slot, f"{whole.id_prefix}{slot:06x}") for id, slot in (("a", 0), ("c", 2))]


@given(texts, texts, st.lists(texts, max_size=3), values)
def test_every_operation_is_told_as_it_was_sent(
    type: str, id: str, parents: list[str], data: Any
) -> None:
    """For any text each field is that of the line, and data is the same JSON."""
    made = line(type=type[:20], id=id[:60], parents=[each[:60] for each in parents], data=data)

    (row,) = table([made])

    operation = parse_line(made)
    assert (row["event"], row["type"], row["id"]) == ("update", operation.type, operation.id)
    assert tuple(row["parents"]) == operation.parents
    assert row["line"] == made
    assert (None if row["data"] is None else json.loads(row["data"])) == data


def test_the_place_is_told() -> None:
    """Page, slot, time and the cursor of them, as the feed's own event id."""
    (_, row) = table([line(), line()])

    assert (row["page"], row["slot"]) == (3, 1)
    assert row["cursor"] == f"{AT_MS // 1000:08x}{3:010x}{1:06x}"
    assert row["at"].timestamp() * 1000 == pytest.approx(AT_MS)


def test_what_an_operation_has_not_is_null() -> None:
    """No tags, no changed and no data; parents are an empty array as in the log."""
    (row,) = table([line()])

    assert (row["tags"], row["changed"], row["data"], row["parents"]) == (None, None, None, [])


def test_a_change_is_told_with_its_data_alone() -> None:
    """The mark after the data of a change is not part of it."""
    made = changes.line_of(Change('{"a":1}', ("t",)), name="c1", now_ms=AT_MS)

    (row,) = table([made])

    assert (row["type"], row["data"], row["parents"]) == ("change", '{"a":1}', ["t"])


def test_an_erasure_is_a_deletion_without_its_data() -> None:
    """Neither the erasure entry nor an erased entry has data; the line is that of the log."""
    entry = encode_entry(Entry("video", "x", "ann", "asked", ("p",)), now_ms=AT_MS)
    erased = '{"event":"delete","timestamp":"2026-01-01T00:00:00Z","parents":[],"type":"video"'
    erased += f',"id":"erased:3"{ERASED_MARK}'

    rows = table([entry, erased])

    found = [(row["event"], row["id"], row["parents"], row["data"]) for row in rows]
    assert found == [("delete", "x", ["p"], None), ("delete", "erased:3", [], None)]
    assert [row["line"] for row in rows] == [entry, erased]


def test_what_is_not_asked_for_is_not_parsed() -> None:
    """Columns of the position and the line can be read even from lines that are not JSON."""
    (row,) = table(['{"event":"insert",oops'], ["cursor", "event", "line"])

    assert row["event"] == "insert"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("pqr"), max_size=3))),
    st.sampled_from([None, "a", "a,b", ","]),
    st.sampled_from([None, "p", "p,q", ","]),
)
def test_a_filter_decides_as_the_feed_does(
    told: list[tuple[str, list[str]]], types: str | None, parents: str | None
) -> None:
    """Values of types, and of parents, are alternatives; both must match; an empty list matches
    nothing.
    """
    wanted = filters.parse(types, parents)
    lines = [line(type=type, parents=each) for type, each in told]

    found = [row["line"] for row in table(lines, ["line"], wanted)]

    assert found == [each for each in lines if wanted.matches(parse_line(each))]


def test_many_small_pieces_become_few_batches() -> None:
    """A page with one operation does not become its own batch; batches have a limit."""
    count = columns.BATCH_LINES + 1
    pieces = [of_page(Page(number, line(), "", AT_MS)) for number in range(1, count + 1)]

    found = list(columns.batches(pieces, ["page"], EVERYTHING))

    assert [batch.num_rows for batch in found] == [columns.BATCH_LINES, 1]


def test_rows_without_a_place_have_none() -> None:
    """Fields of a state's row that HTTP does not send are null."""
    (batch,) = columns.batches([Piece([line()])], ["cursor", "page", "slot", "at"], EVERYTHING)

    assert batch.to_pylist() == [{"cursor": None, "page": None, "slot": None, "at": None}]


def test_columns_that_are_not_known_are_refused() -> None:
    """T39: the error has the name, the type, and the allowed values."""
    with pytest.raises(WrongColumn, match="no column 'object'; the columns are cursor, page"):
        columns.subset(["object"])
    with pytest.raises(WrongColumn, match="column id is string, not int"):
        columns.check_schema(StructType([StructField("id", IntegerType())]))
