"""Reconciling: the rule for each object of a dump, and the corrections of a whole dump.

The meaning of a line of a dump.

Checks that stop a sync before it does harm.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page
from tests.unit.core.sync.reconcile import reconcile
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model import timestamps
from tidings.core.model.operations import event_of, line_from, object_key, parse_line
from tidings.core.model.timestamps import normal_form
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
from tidings.core.sync.dumps import (
    Described,
    End,
    Found,
    Objection,
    Planned,
    StoredObject,
    check_dump,
    check_plan,
    check_rebuild,
    dump_line,
    event_for,
    moment_of,
    read_line,
    timestamp_of,
)
from tidings.core.sync.watermark import Moment, Reached, Watermark

T = NOW
NEWEST = T + 10


def row(name: str, event: str = "update", *, ms: int = T, page: int = 5, **fields: Any) -> Row:
    """Return the state's row of an object that changed at *ms*."""
    raw = {"event": event, "type": "video", "id": name, "timestamp": timestamps.from_ms(ms)}
    line = line_from(raw | fields, now_ms=0)
    return Row(
        key=object_key(parse_line(line)), page=page, slot=1, at_ms=NOW, line=line, expires_ms=0
    )


def dumped(name: str, *, ms: int = T, **fields: Any) -> str:
    """Return the dump's line of an object that changed at *ms*."""
    raw = {"type": "video", "id": name, "timestamp": timestamps.from_ms(ms)}
    return dump_line(raw | fields)


def described(made: list[Correction]) -> list[str]:
    return [f"{event_of(each.line)} {each.key}" for each in made]


@pytest.mark.parametrize(
    ("in_dump", "stored", "event"),
    [
        (T, None, "insert"),
        (T + 1, StoredObject(T, deleted=False), "update"),
        (T, StoredObject(T, deleted=False), None),
        (T - 1, StoredObject(T, deleted=False), None),
        (T + 1, StoredObject(T, deleted=True), "insert"),
        (T, StoredObject(T, deleted=True), None),
        (T - 1, StoredObject(T, deleted=True), None),
    ],
)
def test_O66_what_a_dump_has(in_dump: int, stored: StoredObject | None, event: str | None) -> None:
    """A missing object is an insert; a strictly newer one an update, or an insert if it was
    deleted; else nothing.
    """
    assert event_for(in_dump, stored) == event


@pytest.mark.parametrize("in_dump", [None, T - 1, T, T + 1])
@pytest.mark.parametrize("deleted", [False, True])
def test_what_changed_behind_the_watermark_is_left_alone(
    in_dump: int | None, deleted: bool
) -> None:
    """This holds for any times of dump and state, and for deleted objects."""
    assert event_for(in_dump, StoredObject(T, deleted=deleted, later=True)) is None


@pytest.mark.parametrize(
    ("ms", "event", "corrected"),
    [
        (NEWEST - 1, "update", True),
        (NEWEST, "update", False),
        (NEWEST + 1, "update", False),
        (NEWEST - 1, "delete", False),
        (NEWEST + 1, "delete", False),
    ],
)
def test_O67_what_a_dump_lacks(ms: int, event: str, corrected: bool) -> None:
    """Strictly older than the newest line: delete, once."""
    made = reconcile([dumped("new", ms=NEWEST)], [row("a", event, ms=ms), row("new", ms=NEWEST)])
    assert described(made) == (["delete video/a"] if corrected else [])


def test_O67_an_empty_dump_deletes_nothing() -> None:
    """This holds with a watermark and without one."""
    for watermark in (None, Reached(Position(99, 0)), Moment(NEWEST)):
        assert reconcile([], [row("a", ms=0)], watermark) == []


DAY, YEAR = 24 * 3600 * 1000, 365 * 24 * 3600 * 1000
WATERMARKS = [Reached(Position(7, 0)), Moment(NOW + 7)]


@pytest.mark.parametrize("watermark", WATERMARKS, ids=["place", "moment"])
@pytest.mark.parametrize("off", [DAY, -YEAR, 73 * YEAR], ids=["ahead", "behind", "2099"])
def test_a_clock_that_is_wrong_deletes_and_overwrites_nothing_newer(
    watermark: Watermark, off: int
) -> None:
    """All times of the dump are wrong, or those of the feed. Objects that changed while the dump
    was made, on pages 8 and 9, are kept; earlier ones that the dump lacks are deleted.
    """
    for wrong, right in ((off, 0), (0, off)):
        dump = [dumped(name, ms=T + wrong) for name in ("kept", "again", "missed")]
        rows = [
            stood("kept", 6, ms=T + right),
            stood("gone", 7, ms=T + right),
            stood("again", 8, ms=T + right),
            stood("new", 9, ms=T + right),
            stood("removed", 9, "delete", ms=T + right),
        ]
        made = reconcile([*dump, dumped("removed", ms=T + wrong)], rows, watermark)
        updated = ["update video/kept"] if wrong > right else []
        assert described(made) == ["insert video/missed", *updated, "delete video/gone"]


def stood(name: str, page: int, event: str = "update", *, ms: int) -> Row:
    """Return a row whose page was committed as many ms after `NOW` as its number says, minus one up
    to page 7.
    """
    at_ms = NOW + page - (page <= 7)
    return row(name, event, ms=ms, page=page)._replace(slot=0, at_ms=at_ms)


def test_O70_a_created_object_is_an_insert() -> None:
    """Copies get an insert, whatever event the dump had."""
    (correction,) = reconcile([dumped("a", EVENT="create")], [])

    assert json.loads(correction.line)["event"] == "insert"


def test_O72_nothing_leaks_between_lines() -> None:
    """A field that one line lacks is not taken from the line before."""
    made = reconcile([dumped("a", parents=["p"], data={"n": 1}), dumped("b")], [])

    assert [json.loads(each.line).get("parents") for each in made] == [["p"], []]
    assert "data" not in json.loads(made[1].line)


def test_a_delete_is_the_row_once_more() -> None:
    """It keeps the parents, for consumers that filter by them, and the time, so that later data
    wins."""
    (correction,) = reconcile(
        [dumped("b", ms=T + 5)], [row("b", ms=T + 5), row("a", parents=["p"])]
    )

    assert correction.line == row("a", "delete", parents=["p"]).line


def test_types_are_compared_in_lower_case() -> None:
    """The log stores types so; otherwise an object would be created and deleted at once."""
    line = dump_line({"type": "VIDEO", "id": "a", "timestamp": timestamps.from_ms(T)})

    assert reconcile([line], [row("a")]) == []


def test_times_are_compared_to_the_millisecond() -> None:
    """The stored times end there: further digits would cause an update in every run."""
    line = dump_line({"type": "video", "id": "a", "timestamp": "2026-11-20T17:19:10.1239Z"})
    ms = timestamps.to_ms("2026-11-20T17:19:10.123Z")

    assert reconcile([line], [row("a", ms=ms)]) == []
    assert described(reconcile([line], [row("a", ms=ms - 1)])) == ["update video/a"]


def test_a_line_without_a_time_creates_and_no_more() -> None:
    """It is older than anything, and the dump's newest line is not."""
    timeless = [dump_line({"type": "video", "id": name}) for name in ("a", "b")]

    assert described(reconcile(timeless, [row("a"), row("c")])) == ["insert video/b"]


LINE = b'{"type":"Video","id":"x1","parents":["user/a"],"timestamp":"2026-01-02T03:04:05.060Z"}'


def test_an_object_is_described() -> None:
    """It has its key, its time, and its operation without the event, which is decided later."""
    described = read_line(LINE)
    assert isinstance(described, Described)
    assert (described.key, described.moment) == ("video/x1", "2026-01-02T03:04:05.06")
    assert json.loads(described.line)["parents"] == ["user/a"]


def test_blank_lines_mean_nothing() -> None:
    """This holds for every kind of blank."""
    assert [read_line(text) for text in (b"", b"\r", b" \t\r")] == [None] * 3


def test_an_end_line_counts() -> None:
    """An object that happens to have a field of that name is an object."""
    assert read_line(b'{"tidings":"end","lines":12}') == End(12)
    assert isinstance(read_line(LINE[:-1] + b',"tidings":"end"}'), Described)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"{", "must be JSON"),
        (b"7", "must be a JSON object"),
        (b'{"type":"a"}', "id: is required"),
        (b'{"tidings":"END","lines":1}', 'tidings: must be "end"'),
        (b'{"tidings":"end","lines":-1}', "lines: must be a whole number"),
        (b'{"tidings":"end","lines":true}', "lines: must be a whole number"),
        (b'{"tidings":"end"}', "lines: must be a whole number"),
    ],
)
def test_a_bad_line_says_why(text: bytes, sentence: str) -> None:
    """The error has the field and the rule, as for a producer."""
    with pytest.raises(InvalidOperation) as caught:
        read_line(text)
    assert sentence in str(caught.value)


@given(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=2))
def test_moments_compare_as_time_does(times: list[datetime]) -> None:
    """They sort as text, and with a Z they are timestamps again."""
    stamps = [normal_form(each.replace(tzinfo=UTC).isoformat()) for each in times]
    moments = [moment_of(f'{{"event":"insert","timestamp":"{each}",') for each in stamps]
    millis = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in times]
    ordered = sorted(zip(moments, millis, strict=True))
    assert [each for _, each in ordered] == sorted(millis)
    assert [timestamp_of(each) for each in moments] == stamps


def code(objection: Objection | None) -> str:
    return "" if objection is None else objection.code


def test_an_empty_dump_is_refused() -> None:
    """It is refused even if its end line says that it is empty: this cannot be intended."""
    assert code(check_dump(Found(0))) == "empty_dump"
    assert code(check_dump(Found(0, declared=0))) == "empty_dump"


@pytest.mark.parametrize("lines", [9, 11])
def test_a_dump_of_another_length_is_refused(lines: int) -> None:
    """The length may come from its end line or from the command."""
    for objection in (check_dump(Found(lines, declared=10)), check_dump(Found(lines), expected=10)):
        assert code(objection) == "truncated_dump"
        assert objection is not None and f"has {lines} objects" in objection.sentence


def test_a_whole_dump_passes() -> None:
    """It passes with the right declared length, and without one."""
    assert check_dump(Found(10, declared=10), expected=10) is None
    assert check_dump(Found(10)) is None


@pytest.mark.parametrize(
    ("part", "whole", "share_max", "stops"),
    [
        (10, 100, 0.1, False),
        (11, 100, 0.1, True),
        (0, 0, 0.1, False),
        (0, 5, 0.1, False),
        (1, 1, 0.1, True),
        (5, 5, 1, False),
    ],
)
def test_more_than_the_share_stops_a_plan_or_a_rebuild(
    part: int, whole: int, share_max: float, stops: bool
) -> None:
    """Too many deletes, or a log that knows too little: it is more likely the wrong log."""
    plan = check_plan(Planned(part, whole), share_max=share_max)
    rebuild = check_rebuild(part, whole, share_max=share_max)

    assert code(plan) == ("too_many_deletes" if stops else "")
    assert code(rebuild) == ("too_many_aliens" if stops else "")


STORED_LINE = line("x1", "update", parents=["user/ann"], data={"n": 1})


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
    made = corrections.correction(STORED_LINE, Position(0x1234, 7))

    text = corrections.encode(made)

    assert json.loads(text) == json.loads(STORED_LINE) | {"at": "0000001234000007"}
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


def plan_row(number: int, text: str = OTHER, slot: int = 0) -> Row:
    return Row("video/a", number, slot, NOW, text)


@pytest.mark.parametrize(
    ("at", "rows", "verdict"),
    [
        (Position(3, 0), [plan_row(3)], Verdict.UNCHANGED),
        (Position(3, 0), [plan_row(3, NEW)], Verdict.UNCHANGED),
        (Position(3, 0), [plan_row(3, slot=1)], Verdict.MOVED),
        (Position(3, 0), [plan_row(4)], Verdict.MOVED),
        (Position(3, 0), [plan_row(2)], Verdict.MOVED),
        (Position(3, 0), [plan_row(4, NEW)], Verdict.DONE),
        (Position(3, 0), [], Verdict.MOVED),
        (NOWHERE, [], Verdict.UNCHANGED),
        (NOWHERE, [plan_row(1)], Verdict.MOVED),
        (NOWHERE, [plan_row(1, NEW)], Verdict.DONE),
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
    where.see_rows([plan_row(5, OTHER, slot=1)])

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
