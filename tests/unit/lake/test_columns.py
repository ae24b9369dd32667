"""A schema per type: declared columns, inferred columns, and invalid files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidings.lake.columns import (
    COLUMNS_MAX,
    INFER,
    DataColumn,
    TypeColumns,
    from_file,
    infer_columns,
    missing_columns,
    parse,
)
from tidings.lake.warehouse import BadColumns

TITLE = DataColumn("title", "title", "string")
VIEWS = DataColumn("views", "viewCount", "bigint")


def test_a_file_declares_or_infers(tmp_path: Path) -> None:
    """A column has the name of its key, or says which key it is."""
    path = tmp_path / "columns.json"
    path.write_text(
        json.dumps(
            {
                "video": {
                    "title": "string",
                    "views": {"key": "viewCount", "type": "BIGINT"},
                    "stats": "struct<likes: bigint, first: string>",
                },
                "user": INFER,
            }
        )
    )

    found = from_file(path)

    stats = DataColumn("stats", "stats", "struct<likes:bigint,first:string>")
    assert found == {"video": TypeColumns((TITLE, VIEWS, stats)), "user": TypeColumns(infers=True)}
    assert (stats.fields, TITLE.fields) == (("likes", "first"), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object with a schema for each type"),
        ('{"": "infer"}', "type '': must have 1 to"),
        ('{"v": "guess"}', "columns of 'v': must be 'infer', or an object"),
        ('{"v": {}}', "columns of 'v': must be 'infer', or an object"),
        ('{"v": {"Title": "string"}}', "'Title': must have only small letters"),
        ('{"v": {"id": "string"}}', "'id': is a column of every table; name the column 'data_id'"),
        ('{"v": {"t": "text"}}', "'t': type 'text': must be string, boolean"),
        ('{"v": {"t": "array<array<int>>"}}', "type 'array<array<int>>'"),
        ('{"v": {"t": 1}}', "type 1: must be"),
        ('{"v": {"t": {"key": "a`", "type": "int"}}}', "key 'a`': must have 1 to 255"),
        ('{"v": {"a": "int", "b": {"key": "A", "type": "int"}}}', "the key 'a' has two columns"),
    ],
)
def test_what_is_no_schema_is_told_by_its_name(text: str, said: str) -> None:
    """The type, the column and the rule; nothing is made of the rest."""
    with pytest.raises(BadColumns, match="columns") as raised:
        parse(text)

    assert said in str(raised.value)


def test_a_file_that_is_none_and_too_many_columns(tmp_path: Path) -> None:
    """The errors include the file and the number."""
    with pytest.raises(BadColumns, match="cannot be read"):
        from_file(tmp_path / "none.json")
    many = {f"c{number}": "int" for number in range(COLUMNS_MAX + 1)}
    with pytest.raises(BadColumns, match=f"has {COLUMNS_MAX + 1} columns, at most {COLUMNS_MAX} "):
        parse(json.dumps({"v": many}))


def test_a_column_is_added_and_never_changed() -> None:
    """One that is declared otherwise than the table has it needs another name."""
    assert missing_columns([TITLE], [TITLE, VIEWS]) == [VIEWS]
    with pytest.raises(BadColumns, match="column 'title': has the type string and the key"):
        missing_columns([TITLE], [DataColumn("title", "title", "bigint")])
    with pytest.raises(BadColumns, match="and the key 'viewCount' in the table"):
        missing_columns([VIEWS], [DataColumn("views", "views", "bigint")])


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        ({"STRING"}, "string"),
        ({"BIGINT", "VOID"}, "bigint"),
        ({"BIGINT", "DECIMAL(2,1)"}, "double"),
        ({"DECIMAL(3,2)"}, "double"),
        ({"BIGINT", "STRING"}, "string"),
        ({"OBJECT"}, "string"),
        ({"ARRAY<STRING>", "ARRAY<VOID>"}, "array<string>"),
        ({"ARRAY<OBJECT<a: BIGINT>>"}, "string"),
    ],
)
def test_a_kind_for_what_was_seen(kinds: set[str], kind: str) -> None:
    """A key with values of several kinds, or of a kind without a column, becomes text."""
    assert infer_columns([], {"k": kinds}) == [DataColumn("k", "k", kind)]


def test_keys_become_names_and_some_stay_in_data() -> None:
    """A name is used only once; nulls alone do not determine a kind."""
    seen = {
        key: {"BIGINT"}
        for key in ("viewCount", "ViewCount", "view-count", "7days", "id", "Title", "a`b", "_unfit")
    }
    found = infer_columns([TITLE], seen | {"nothing": {"VOID"}, "empty": {"ARRAY<VOID>"}})

    assert [(each.name, each.key) for each in found] == [
        ("view_count", "viewCount"),
        ("_7days", "7days"),
        ("data_id", "id"),
    ]


def test_no_more_columns_are_inferred_than_a_table_may_have() -> None:
    """The most frequent keys come first, and get the columns."""
    seen = {f"k{number}": {"STRING"} for number in range(COLUMNS_MAX + 5)}

    assert len(infer_columns([TITLE], seen)) == COLUMNS_MAX - 1
