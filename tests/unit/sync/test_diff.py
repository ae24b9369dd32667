"""The comparison is what the rules of the core say, one by one and all together."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.unit.core.sync.reconcile import reconcile
from tests.unit.sync.engines import on_both
from tests.unit.sync.lines import line, row, written
from tidings.core.model.operations import EVENTS, event_of, parse_line
from tidings.core.state.rows import Row
from tidings.core.sync.corrections import Correction, Position, read
from tidings.core.sync.dumps import Described, moment_of, read_line
from tidings.core.sync.watermark import Moment, Reached, Watermark
from tidings.sync import engine
from tidings.sync.dump import BadDump
from tidings.sync.job import Job, Stopped, Summary, SyncOptions
from tidings.sync.state import columns

ALL = SyncOptions(delete_share_max=1)


@dataclass(frozen=True)
class Rows:
    """Implements `StateSource`."""

    rows: Iterable[Row]

    def table(self, spark: SparkSession) -> DataFrame:
        schema = to_arrow_schema(engine.ROWS)
        rows = [dict(zip(engine.ROWS.names, columns(each), strict=True)) for each in self.rows]
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema), engine.ROWS)

    def check(self) -> None: ...


def planned(
    session: SparkSession,
    folder: Path,
    dump: Iterable[bytes],
    rows: Iterable[Row],
    options: SyncOptions = ALL,
) -> tuple[list[Correction], Summary]:
    """Return the corrections that the job writes, in the order in which they are applied."""
    folder.mkdir(exist_ok=True)
    path = written(folder / "dump", dump)
    work = folder / "work"
    summary = Job(session, str(work), options, lambda name: None).make_plan(
        [path], Rows(rows), through=7
    )
    found: list[Correction] = []
    for part in sorted((work / "plan").glob("*/*.gz")):
        with gzip.open(part) as lines:
            found += read(lines)
    return found, summary


def reconciled(
    dump: Iterable[bytes], rows: Iterable[Row], watermark: Watermark | None = None
) -> list[Correction]:
    """Compute the same by the core alone."""
    described = [read_line(text) for text in dump]
    lines = [each.line for each in described if isinstance(each, Described)]
    return reconcile(lines, rows, watermark)


def ordered(found: Iterable[Correction]) -> list[Correction]:
    """Parts are in order of their events; within an event the order means nothing."""
    return sorted(found, key=lambda each: (EVENTS.index(event_of(each.line)), each.key))


# Name, the object's time in the dump, its row's event and time, and the expected correction.
BOUNDARY: Sequence[tuple[str, float | None, str, float | None, str]] = [
    ("missing", 5, "", None, "insert"),
    ("dump-newer", 5, "update", 4.999, "update"),
    ("equal", 5, "insert", 5, ""),
    ("below-a-millisecond", 5.0004, "update", 5, ""),
    ("state-newer", 5, "update", 5.001, ""),
    ("absent-older", None, "update", 8.999, "delete"),
    ("absent-equal", None, "update", 9, ""),
    ("absent-newer", None, "update", 9.5, ""),
    ("tombstone-dump-newer", 5, "delete", 4, "insert"),
    ("tombstone-equal", 5, "delete", 5, ""),
    ("tombstone-newer", 5, "delete", 6, ""),
    ("tombstone-absent", None, "delete", 1, ""),
]


@on_both
def test_O66_O67_the_boundary_table(session: SparkSession, tmp_path: Path) -> None:
    """Every case of the rules at once, each object's name saying which."""
    dump = [line("newest", 9)]
    rows = [row(line("newest", 9))]
    for slot, (name, dumped, event, stood, _) in enumerate(BOUNDARY, 1):
        if dumped is not None:
            dump.append(line(name, 0).replace(b"00.000", f"{dumped:07.4f}".encode()))
        if stood is not None:
            rows.append(row(line(name, stood), event, page=3, slot=slot))

    found, summary = planned(session, tmp_path, dump, rows)

    events = {each.key: event_of(each.line) for each in found}
    assert events == {f"video/{name}": event for name, *_, event in BOUNDARY if event}
    assert ordered(found) == ordered(reconciled(dump, rows))
    assert [event_of(each.line) for each in found] == ["insert"] * 2 + ["update"] + ["delete"]
    assert (summary.creates, summary.updates, summary.deletes, summary.untouched) == (2, 1, 1, 6)
    assert summary.by_type == {"video": {"creates": 2, "updates": 1, "deletes": 1}}
    assert (summary.oldest, summary.newest) == ("2026-01-01T00:00:05Z", "2026-01-01T00:00:09Z")
    assert summary.through == 7


@pytest.mark.parametrize("stood", [None, 2], ids=["not-in-the-state", "in-the-state"])
def test_of_an_object_that_comes_twice_the_last_line_counts(
    session: SparkSession, tmp_path: Path, stood: float | None
) -> None:
    """No other line of the dump shows the repetition."""
    rows = [row(line("a", 1)), *([] if stood is None else [row(line("x", stood))])]
    found, summary = planned(session, tmp_path, [line("a", 1), line("x", 5), line("x", 2)], rows)
    assert found == ordered(reconciled([line("x", 2)], rows[1:]))
    assert (summary.corrections, summary.untouched) == (len(found), len(rows))


def test_part_of_a_feed(session: SparkSession, tmp_path: Path) -> None:
    """With types given, other types are not changed, and their times do not matter."""
    dump = [line("a", 2), line("u", 50, type="user")]
    rows = [row(line("a", 1)), row(line("gone", 1)), row(line("new", 3))]
    rows += [row(line("gone", 1, type="user"))]
    found, summary = planned(
        session, tmp_path, dump, rows, replace(ALL, types=frozenset({"video"}))
    )
    assert {each.key: event_of(each.line) for each in found} == {
        "video/a": "update",
        "video/gone": "delete",
    }
    assert (summary.lines, summary.objects, summary.newest) == (2, 3, "2026-01-01T00:00:02Z")


LINE_OF_2099 = line("late", 1).replace(b"2026", b"2099")


@pytest.mark.parametrize(
    "watermark", [Reached(Position(3, 3)), Moment(3_003)], ids=["place", "moment"]
)
def test_what_is_newer_than_the_dump_stands(
    session: SparkSession, tmp_path: Path, watermark: Watermark
) -> None:
    """The position or the time of the change decides, as in the core; the dump has a line of
    2099."""
    dump = [line("a", 5), line("b", 5), line("back", 5), LINE_OF_2099]
    rows = [
        row(line(name, 1), event, page=page, slot=slot)._replace(at_ms=1_000 * page + slot)
        for name, event, page, slot in [
            ("a", "update", 3, 2),
            ("b", "update", 3, 4),
            ("gone", "update", 2, 9),
            ("new", "insert", 4, 0),
            ("back", "delete", 5, 0),
            ("away", "delete", 1, 0),
            ("late", "update", 9, 0),
        ]
    ]
    found, summary = planned(session, tmp_path, dump, rows, replace(ALL, as_of=watermark))
    events = {each.key: event_of(each.line) for each in found}
    assert events == {"video/a": "update", "video/gone": "delete"}
    assert found == ordered(reconciled(dump, rows, watermark))
    assert (summary.untouched, summary.newest) == (3, "2099-01-01T00:00:01Z")


def test_a_line_from_the_future_is_named(session: SparkSession, tmp_path: Path) -> None:
    """This holds if its time would decide on deletes: without a given start of the dump."""
    dump = [line("a", 1), b"", LINE_OF_2099, line("b", 1)]
    rows = [row(line("gone", 1))]
    with pytest.raises(BadDump) as caught:
        planned(session, tmp_path, dump, rows)
    (bad,) = caught.value.first
    rule = "must not lie in the future (now is 2"
    said = f"{tmp_path}/dump:3: timestamp: 2099-01-01T00:00:01Z {rule}"
    assert (caught.value.count, str(bad).startswith(said)) == (1, True)
    assert "without --as-of, the start of the dump" in str(bad)


def test_nothing_is_deleted_where_that_is_wished(session: SparkSession, tmp_path: Path) -> None:
    """Without deletes nothing stops the sync: no guard, and no line from the future."""
    dump = [line("a", 2), LINE_OF_2099]
    rows = [row(line("a", 1)), row(line("gone", 1))]
    found, summary = planned(session, tmp_path, dump, rows, SyncOptions(deletes=False))
    assert [event_of(each.line) for each in found] == ["insert", "update"]
    assert (summary.deletes, summary.untouched) == (0, 1)


@pytest.mark.parametrize(
    ("dump", "options", "code"),
    [
        ([b""], ALL, "empty_dump"),
        ([b'{"tidings":"end","lines":0}'], ALL, "empty_dump"),
        ([line("a", 2), b'{"tidings":"end","lines":2}'], ALL, "truncated_dump"),
        ([line("a", 2)], SyncOptions(expected=2), "truncated_dump"),
        ([line("a", 2)], SyncOptions(types=frozenset({"user"})), "empty_dump"),
        ([line("a", 2)], SyncOptions(), "too_many_deletes"),
    ],
)
def test_guards_stop_before_a_plan_is_written(
    session: SparkSession, tmp_path: Path, dump: list[bytes], options: SyncOptions, code: str
) -> None:
    """The guards are an empty dump, a dump of another length than declared, and too many
    deletes."""
    rows = [row(line("a", 1)), row(line("b", 1))]
    with pytest.raises(Stopped) as caught:
        planned(session, tmp_path, dump, rows, options)
    assert caught.value.objection.code == code
    assert not (tmp_path / "work" / "plan").exists()


def test_the_summary_names_what_the_feed_stores_differently(
    session: SparkSession, tmp_path: Path
) -> None:
    """Types that are not in lower case, in both ways to read a line, and unknown fields."""
    dump = [line("a", 2), line("b", 2).replace(b'"video"', b'"Video"')]
    dump += [line("c", 2).replace(b'"video"', b'"Video Type!"').replace(b"{", b'{"titel":1,', 1)]
    _, summary = planned(session, tmp_path, dump, [], ALL)
    assert summary.lines == 3
    assert summary.notes == {
        "the type Video is stored as video": 1,
        "the field titel is ignored; the type Video Type! is stored as video type!": 1,
    }


def test_end_lines_add_up(session: SparkSession, tmp_path: Path) -> None:
    """Each counts the lines of its part; bad lines that are passed over were lines too."""
    dump = [line("a", 2), b'{"tidings":"end","lines":1}', line("b", 2), b"bad"]
    dump += [b'{"tidings":"end","lines":2}']
    found, summary = planned(session, tmp_path, dump, [], replace(ALL, skip_bad=1))
    assert len(found) == 2
    assert (summary.lines, summary.bad_lines, summary.known_whole) == (2, 1, True)
    with pytest.raises(BadDump) as caught:
        planned(session, tmp_path, dump, [])
    assert str(caught.value.first[0]).startswith(f"{tmp_path}/dump:4: must be JSON")


@on_both
def test_O72_lines_leak_nothing_into_each_other(session: SparkSession, tmp_path: Path) -> None:
    """Each object has its own parents, and a key that a line lacks stays lacking."""
    dump = [line("a", 1, parents=["p1"]), line("b", 1, parents=["p2"])]
    dump += [b'{"type":"video","id":"c","timestamp":"2026-01-01T00:00:01Z","data":1}']
    dump += [b'{"type":"video","id":"d"}']
    found, _ = planned(session, tmp_path, dump, [])
    told = {each.key: json.loads(each.line) for each in found}
    assert [told[f"video/{name}"]["parents"] for name in "abcd"] == [["p1"], ["p2"], [], []]
    assert ["data" in told[f"video/{name}"] for name in "abcd"] == [False, False, True, False]
    assert told["video/d"]["timestamp"] == "0001-01-01T00:00:00Z"


def after(rows: Iterable[Row], found: Iterable[Correction]) -> list[Row]:
    """Return the state after the corrections were applied."""
    known = {each.key: each for each in rows}
    for each in found:
        expires_ms = 1 if event_of(each.line) == "delete" else 0
        known[each.key] = Row(
            key=each.key, page=99, slot=0, at_ms=0, line=each.line, expires_ms=expires_ms
        )
    return list(known.values())


OBJECTS = 600
SECONDS = 9


def case(random: Random) -> tuple[list[bytes], list[Row]]:
    """Return a random case: each object is in the dump once, twice or not, in the state or not, at
    any time.
    """
    dump, rows = [], []
    for number in range(OBJECTS):
        kind, name = random.choice(["video", "U/r%"]), f"é/%{number}"
        texts = [
            line(name, random.randint(0, SECONDS), type=kind, parents=random.choice([(), ("p",)]))
            for _ in range(3)
        ]
        dump += texts[: random.choice([0, 1, 1, 2])]
        if random.random() < 0.7:
            rows.append(row(texts[2], random.choice(EVENTS), page=number + 1))
    random.shuffle(dump)
    return dump, rows


def ruled(dump: list[bytes], rows: list[Row]) -> dict[str, tuple[bool, str, object]]:
    """Return the result for each object by the rules of docs/guides/SYNC.md."""
    told = {each.key: each for each in map(row, dump)}
    newest = max(moment_of(row(text).line) for text in dump)
    found = {each.key: _said(each) for each in rows}
    for key, (deleted, moment, parents) in list(found.items()):
        if key not in told and not deleted and moment < newest:
            found[key] = (True, moment, parents)
    for key, each in told.items():
        if key not in found or moment_of(each.line) > found[key][1]:
            found[key] = _said(each)
    return found


def _said(each: Row) -> tuple[bool, str, object]:
    return each.deleted, moment_of(each.line), parse_line(each.line).parents


@on_both
def test_O71_many_objects_end_as_the_rules_say(session: SparkSession, tmp_path: Path) -> None:
    """The real job gives the result of the core in six hundred cases at once; a second plan is
    empty."""
    dump, rows = case(Random(1))
    found, summary = planned(session, tmp_path, dump, rows)
    later = after(rows, found)
    assert {each.key: _said(each) for each in later} == ruled(dump, rows)
    assert ordered(found) == reconciled(dump, rows)
    assert found == sorted(found, key=lambda each: EVENTS.index(event_of(each.line)))
    assert summary.corrections == len(found) > OBJECTS // 10
    again, _ = planned(session, tmp_path / "again", dump, later)
    assert again == []
