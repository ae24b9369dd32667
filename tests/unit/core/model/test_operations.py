"""Operations: validated once, at the door, and kept as one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.model.agreement import lines_from
from tests.unit.core.scene import NOW, line, op
from tidings.core import limits
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model import operations
from tidings.core.model.json_body import JSON_TYPE
from tidings.core.model.operations import Operation

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
OPERATIONS = st.fixed_dictionaries(
    {"event": st.sampled_from(["insert", "Update", "DELETE"]), "type": NAMES, "id": NAMES},
    optional={
        "parents": st.lists(NAMES, max_size=4),
        "tags": st.lists(NAMES, max_size=4),
        "changed": st.lists(NAMES, max_size=4),
        "data": VALUES,
        "timestamp": st.sampled_from([None, "2026-11-20T17:19:10.940+01:00"]),
    },
)


def test_the_line_of_an_operation() -> None:
    """It has the event first, the keys in oplog's order, no spaces, and only the given fields."""
    raw = op("X1", "Update", type="Video", parents=["user/U1"], timestamp="2026-11-20T17:19:10.94Z")

    assert operations.line_from(raw, now_ms=NOW) == (
        '{"event":"update","timestamp":"2026-11-20T17:19:10.94Z","parents":["user/U1"],'
        '"type":"video","id":"X1"}'
    )


def test_O15_event_and_type_are_lower_cased_and_names_are_kept() -> None:
    """Case is folded where oplog folds it and nowhere else."""
    operation = operations.parse_line(line("ID", "INSERT", type="ViDeO", parents=["User/U1"]))

    assert operation == Operation("insert", "video", "ID", ("User/U1",))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("ÉTÉ\u03a3", "été\u03c3"), ("\u0130D", "id"), ("\u212a", "k"), ("ß", "ß"), ("ǅ", "ǆ")],
)
def test_O15_lower_case_is_letter_by_letter(name: str, kept: str) -> None:
    """This is oplog's rule: the neighbours of a letter do not matter, and no letter becomes two."""
    assert operations.parse_line(line(type=name)).type == kept


@pytest.mark.parametrize("field", ["type", "id", "data"])
def test_O35_no_character_ends_a_line_for_anybody(field: str) -> None:
    """Unicode's line ends are escaped: some readers of event streams would break a block there."""
    name = "a\u2028b\u2029c\u0085d"
    kept = line(**{"name" if field == "id" else field: name})

    assert len(kept.splitlines()) == 1
    assert json.loads(kept)[field] == name


@pytest.mark.parametrize(
    ("field", "bytes_max"), [("type", limits.TYPE_BYTES_MAX), ("id", limits.ID_BYTES_MAX)]
)
def test_names_are_bounded_in_bytes(field: str, bytes_max: int) -> None:
    """The limit is in bytes of UTF-8 and not in characters, as a store counts bytes."""
    operations.line_from(op() | {field: "x" * bytes_max}, now_ms=NOW)
    operations.line_from(op() | {field: "\u00e9" * (bytes_max // 2)}, now_ms=NOW)
    for value in ("x" * (bytes_max + 1), "\u00e9" * (bytes_max // 2) + "x"):
        with pytest.raises(TooLarge, match=f"{field}: holds at most {bytes_max} bytes"):
            operations.line_from(op() | {field: value}, now_ms=NOW)


def test_a_type_is_bounded_in_lower_case_too() -> None:
    """Some capitals grow: the stored type must fit, or it could not be posted again."""
    with pytest.raises(TooLarge, match="type: holds at most 128 bytes, got 192"):
        line(type="\u023a" * 64)


@pytest.mark.parametrize(
    ("field", "count_max"),
    [("parents", limits.PARENTS_MAX), ("tags", limits.TAGS_MAX), ("changed", limits.TAGS_MAX)],
)
def test_lists_are_bounded(field: str, count_max: int) -> None:
    """In number, and each text in bytes."""
    longest = "p" * limits.PARENT_BYTES_MAX
    operations.line_from(op() | {field: [longest] * count_max}, now_ms=NOW)
    with pytest.raises(TooLarge, match=f"{field}: holds at most {count_max} entries"):
        operations.line_from(op() | {field: ["p"] * (count_max + 1)}, now_ms=NOW)
    with pytest.raises(TooLarge, match=rf"{field}\[1\]: holds at most"):
        operations.line_from(op() | {field: ["p", longest + "p"]}, now_ms=NOW)


def test_an_operation_is_bounded_as_it_is_kept() -> None:
    """The limit is exact to the byte."""
    room = limits.OPERATION_BYTES_MAX - len(line(data=""))

    assert len(line(data="x" * room)) == limits.OPERATION_BYTES_MAX
    with pytest.raises(TooLarge, match="one operation holds at most 65536 bytes, this one 65537"):
        line(data="x" * (room + 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), [float("inf")]])
def test_data_holds_no_number_beyond_a_double(value: object) -> None:
    """Such a number has no JSON."""
    with pytest.raises(InvalidOperation, match="data: must not hold a number beyond"):
        line(data=value)


@pytest.mark.parametrize("value", ["\udfff", {"\ud800": 1}, [["\ud800x"]]])
def test_data_holds_no_lone_surrogate(value: object) -> None:
    """It has no UTF-8, so no store could keep it."""
    with pytest.raises(InvalidOperation, match="data: must not contain a lone surrogate"):
        line(data=value)


@pytest.mark.parametrize("value", [0, False, "", [], {}, {"a": [1, None]}, "\0\n\r\u2028"])
def test_data_is_any_value(value: object) -> None:
    """Falsy ones are kept; only null is absent."""
    assert json.loads(line(data=value))["data"] == value
    assert "data" not in line(data=None)


@given(OPERATIONS)
def test_a_line_is_one_line_and_reads_back(raw: dict[str, Any]) -> None:
    """A line with any content has no line break, its event can be sliced off, and it has the fields
    as they were sent. Posted again it gives the same bytes, which a repair from a dump relies on.
    """
    kept = operations.line_from(raw, now_ms=NOW)

    assert "\n" not in kept and "\r" not in kept
    assert operations.event_of(kept) == raw["event"].lower()
    operation = operations.parse_line(kept)
    assert operation.type == raw["type"].lower()
    assert operation.id == raw["id"]
    assert list(operation.parents) == raw.get("parents", [])
    assert json.loads(kept).get("data") == raw.get("data")
    assert operations.line_from(json.loads(kept), now_ms=NOW + 1) == kept


@given(OPERATIONS)
def test_data_of_is_the_line_without_its_event(raw: dict[str, Any]) -> None:
    """By slicing, so it is proved for every kind of operation."""
    kept = operations.line_from(raw, now_ms=NOW)
    event = {"event": operations.event_of(kept)}

    assert event | json.loads(operations.data_of(kept)) == json.loads(kept)
    assert "event" not in json.loads(operations.data_of(kept))
    assert "\n" not in operations.data_of(kept)


def test_a_line_gets_another_event() -> None:
    """The rest of the line stays."""
    line = operations.line_from({"event": "insert", "type": "a", "id": "insert"}, now_ms=0)

    assert operations.as_event(line, "delete") == line.replace("insert", "delete", 1)


@pytest.mark.parametrize(
    "text",
    [
        "3.14159265358979323846264338327",
        "-1e-400",
        "1.00000000000000000001E+2",
        "0.30000000000000004",
        "123456789012345678901234567890123456789012345678901",
        '["##1.5","#",{"#3.14159265358979323846":[3.14159265358979323846,"\\"##"]}]',
        '{"a":[1.1,5e-325,"5e-325"]}',
    ],
)
def test_numbers_in_data_keep_their_digits(text: str) -> None:
    """This includes more digits than a double has; text that only looks like a number stays as it
    is."""
    body = f'{{"event":"insert","type":"video","id":"x","data":{text}}}'
    (line,) = lines_from(body.encode(), JSON_TYPE, now_ms=0)

    assert line.partition(',"data":')[2] == f"{text}}}"


def test_numbers_of_one_value_are_written_in_one_way() -> None:
    """A double's own, as before."""
    body = '{"event":"insert","type":"video","id":"x","data":[1.50,1.0E+2,-0.0,1e22]}'
    (line,) = lines_from(body.encode(), JSON_TYPE, now_ms=0)

    assert line.endswith('"data":[1.5,100.0,-0.0,1e+22]}')
