"""Corrections: a line of a plan, written and read back.

Conflicts: the positions of objects, from rows and pages, and the verdict on a correction.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.state.rows import Row
from tidings.core.sync import corrections
from tidings.core.sync.corrections import (
    NOWHERE,
    Conflicts,
    Correction,
    Position,
    Verdict,
    correction,
)

LINE = line("x1", "update", parents=["user/ann"], data={"n": 1})


def written(**fields: Any) -> bytes:
    """Return a line of a part as another program may write it."""
    given_ = {
        "event": "update",
        "type": "video",
        "id": "x1",
        "timestamp": "2026-11-20T17:19:10.94Z",
        "at": "",
    }
    kept = {name: value for name, value in (given_ | fields).items() if value is not None}
    return json.dumps(kept).encode()


def test_a_correction_is_an_operation_and_where_its_object_stands() -> None:
    """It is one line of JSON: ten hex digits of page, six of slot."""
    made = corrections.correction(LINE, Position(0x1234, 7))

    text = corrections.encode(made)

    assert json.loads(text) == json.loads(LINE) | {"at": "0000001234000007"}
    assert "\n" not in text
    assert made.key == "video/x1"


@given(
    page=st.integers(1, 2**40 - 1),
    slot=st.integers(0, 2**23 - 1),
    name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
)
def test_a_correction_is_read_back_as_it_was(page: int, slot: int, name: str) -> None:
    """This holds for any name of an object, and any position."""
    for at in (Position(page, slot), NOWHERE):
        made = corrections.correction(line(name[:100]), at)

        assert corrections.decode(corrections.encode(made).encode()) == made


def test_a_correction_is_brought_into_the_log_s_form() -> None:
    """Key order, case and spelling are those of the program that wrote it, never the log's."""
    decoded = corrections.decode(
        b'{"at":"000000000A00000B", "id":"x1","type":"Video","event":"DELETE",'
        b'"timestamp":"2026-11-20T18:19:10.940123+01:00"}'
    )

    assert decoded == Correction(
        "video/x1",
        '{"event":"delete","timestamp":"2026-11-20T17:19:10.94Z","parents":[],'
        '"type":"video","id":"x1"}',
        Position(10, 11),
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"{", "line 3"),
        (b"[]", "line 3"),
        (b"", "line 3"),
        (written(event="create"), "line 3: event"),
        (written(type=7), "line 3: type"),
        (written(id=None), "line 3: id"),
        (written(timestamp=None), "line 3: timestamp"),
        (written(at=None), "line 3: at"),
        (written(at="12"), "line 3: at"),
        (written(at="000000000a00000g"), "line 3: at"),
        (written(at=10), "line 3: at"),
    ],
)
def test_a_bad_correction_is_named_by_its_line_and_field(text: bytes, field: str) -> None:
    """This finds plans that were written by another program, or cut."""
    part = [written(), written(), text]

    with pytest.raises(InvalidOperation) as caught:
        list(corrections.read(part))

    assert caught.value.field == field


def test_a_correction_is_no_larger_than_an_operation() -> None:
    """It becomes one."""
    with pytest.raises(TooLarge):
        corrections.decode(written(data="x" * 70_000))


def test_a_part_is_read_on_from_a_line() -> None:
    """Lines before it are not parsed; lines keep their numbers."""
    part = [b"not JSON\n", written(id="a") + b"\n", written(id="b") + b"\n"]

    assert [each.key for each in corrections.read(part, handled=1)] == ["video/a", "video/b"]
    assert list(corrections.read(part, handled=3)) == []
    with pytest.raises(InvalidOperation, match="line 1"):
        list(corrections.read(part))


NEW = line("a", "update", data="new")
OTHER = line("a", "update", data="other")
AT = Position(3, 0)


def wanted(at: Position = AT) -> Correction:
    return correction(NEW, at)


def row(number: int, text: str = OTHER, slot: int = 0) -> Row:
    return Row("video/a", number, slot, NOW, text)


@pytest.mark.parametrize(
    ("at", "rows", "verdict"),
    [
        (Position(3, 0), [row(3)], Verdict.UNCHANGED),
        (Position(3, 0), [row(3, NEW)], Verdict.UNCHANGED),
        (Position(3, 0), [row(3, slot=1)], Verdict.MOVED),
        (Position(3, 0), [row(4)], Verdict.MOVED),
        (Position(3, 0), [row(2)], Verdict.MOVED),
        (Position(3, 0), [row(4, NEW)], Verdict.DONE),
        (Position(3, 0), [], Verdict.MOVED),
        (NOWHERE, [], Verdict.UNCHANGED),
        (NOWHERE, [row(1)], Verdict.MOVED),
        (NOWHERE, [row(1, NEW)], Verdict.DONE),
    ],
)
def test_a_correction_needs_its_object_just_where_it_was(
    at: Position, rows: list[Row], verdict: Verdict
) -> None:
    """An object at another position has moved, unless the later operation equals the correction."""
    where = Conflicts([wanted(at)], page=5)

    where.see_rows(rows)

    assert where.verdict(wanted(at)) is verdict


def test_the_log_is_newer_than_the_rows_or_older() -> None:
    """Rows may be newer than the checkpoint that was read before them; the later position
    counts."""
    where = Conflicts([wanted()], page=3)
    where.see_rows([row(5, OTHER, slot=1)])

    where.see_pages([page(4, NEW)])
    assert where.verdict(wanted()) is Verdict.MOVED

    where.see_pages([page(5, NEW, OTHER)])
    assert where.verdict(wanted()) is Verdict.MOVED

    where.see_pages([page(6, line("b"), NEW)])
    assert where.verdict(wanted()) is Verdict.DONE
    assert where.page == 6


def test_pages_are_seen_without_a_hole() -> None:
    """An operation on a missed page could not be ruled out."""
    where = Conflicts([wanted()], page=3)

    with pytest.raises(AssertionError):
        where.see_pages([page(5, NEW)])


def test_others_are_not_remembered() -> None:
    """This holds for a log of any length."""
    where = Conflicts([wanted()], page=0)

    where.see_pages([page(1, *(line(f"x{at}") for at in range(100)))])

    assert where._at == {}
