"""No key and no value of the data stops a table: what fits no column is kept in `data`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.unit.core.scene import line
from tests.unit.lake import readers
from tests.unit.lake.parts import Scene, fold, kept
from tidings.lake import columns
from tidings.lake.status import run_query
from tidings.lake.warehouse import TypesFailed

INTERNAL = ["__row_operation", "__row_from_source", "__row_id", "event", "tidings.event", "t", "s"]
OWN = [*columns.FIXED, "type", "line", "changed", "data_page", "data__file"]
SPELLED = ["a.b", "a`b", "a'b]", "it's", "back\\slash", 'quo"te', "${env:HOME}", "${spark.app.id}"]
WORDS = ["select", "null", "group by", "TABLE", "c0", "c1", "_unfit", "_values", "_texts", "read"]
CASES = ["Title", "title", "TITLE", "s", "\u017f", "K", "\u212a", "\u00fc", "\u0130", "i\u0307"]
STRANGE = ["", " ", "\x00", "\n", "\t\r\x1f\x7f", "\u2028", "\U0001f600", "\u200d", "x" * 300]
LONG = "y" * 52_000  # more than Spark's reader of JSON takes as a name
KEYS = [*columns.METADATA, *INTERNAL, *OWN, *SPELLED, *WORDS, *CASES, *STRANGE]
NUMBERS = ["9223372036854775808", "3.14159265358979323846264338327", "1e400", "1e-400", "-0.0"]
EXACT = ["0.1", "0.30000000000000004", "1.50", "1e22", "12345678901234567890.5"]


def test_no_key_stops_a_table(scene: Scene) -> None:
    """Each strange key is in its own object, and all are in one object; another object has 2,000
    keys, more than a table has columns. Every object is in the table, its column has its value if
    it has one, and `data` has all of it if not. Later values and deletes reach the table as well.
    """
    data = {str(at): {key: at} for at, key in enumerate([*KEYS, LONG])}
    data["all"] = {key: 1 for key in KEYS}
    data["many"] = {f"k{at}": at for at in range(2_000)}
    _put(scene, 1, data)
    (batch,) = scene.follow('{"video": "infer"}')
    _check(scene, data)
    assert batch.failed == {}
    assert batch.left["video"] == len(_kept(scene))

    data = {id: {key: value + 1 for key, value in each.items()} for id, each in data.items()}
    _put(scene, 2, data)
    scene.put(kept(3, line("0", event="delete"), line("many", event="delete")))
    scene.follow('{"video": "infer"}')
    del data["0"], data["many"]
    _check(scene, data)
    names = {each.name for each in scene.tables('{"video": "infer"}').types["video"].columns()}
    assert not names & {*columns.METADATA, *columns.FIXED}
    assert {"data__file", "event", "t", "s", "data_page", "select"} <= names


def test_values_that_change_their_type(scene: Scene) -> None:
    """A number that becomes a text and a number again, an object that becomes a number, arrays of
    mixed types: the column has what fits it, and `data` the rest, with the digits of each number.
    """
    first = {"n": 1, "o": {"p": 1}, "a": [1, 2], "d": 0.5, "w": 0.5, "b": True, "x": None}
    _put(scene, 1, {"a": first})
    scene.follow('{"video": "infer", "user": {"when": "timestamp", "day": "date"}}')
    data: dict[str, Any] = {
        "n": first | {"n": "one"},
        "back": first | {"n": 7},
        "o": first | {"o": 5},
        "mixed": first | {"a": [1, "two", None, {"three": [3]}]},
        "scalar": first | {"a": 1, "b": "true", "x": [[]]},
        "nan": first | {"d": "NaN", "w": "Infinity"},
    }
    texts = {id: json.dumps(each) for id, each in data.items()}
    texts |= {f"d{at}": f'{{"d":{number}}}' for at, number in enumerate([*NUMBERS, *EXACT])}
    texts["o2"] = '{"o":{"\\"":"1.123456789012345678","p":[1.123456789012345678]}}'
    texts |= {"two": '{"n":1,"n":2}', "nest": '{"n":' + "[" * 60 + "]" * 60 + "}"}
    times = {"s": '"2026-01-02T03:04:05.123456Z"', "ns": '"2026-01-02T03:04:05.1234567Z"'}
    times |= {"ms": "1700000000000", "s5": "5", "odd": '"5"'}
    days = {"day": '"2026-01-02"', "time": '"2026-01-02T03:04:05"'}
    lines = [_line(id, text) for id, text in texts.items()]
    lines += [_line(id, f'{{"when":{text}}}', "user") for id, text in times.items()]
    lines += [_line(id, f'{{"day":{text}}}', "user") for id, text in days.items()]
    scene.put(kept(2, *lines))
    (batch,) = scene.follow('{"video": "infer", "user": {"when": "timestamp", "day": "date"}}')

    sql = "SELECT id, n, o, a, d, data FROM t WHERE id <> 'a' ORDER BY id"
    found = {row[0]: row[1:] for row in readers.asked(scene, "main_type_video", sql)}
    whole = {id: row[-1] for id, row in found.items() if row[-1] is not None}
    fits = {"back", "o", "d4", *(f"d{len(NUMBERS) + at}" for at in range(4))}
    assert whole == {id: text for id, text in texts.items() if id not in fits}
    assert (found["back"][0], found["o"][1], found["n"][0]) == (7, "5", None)
    assert found["d2"][3] is None and found["d1"][3] == pytest.approx(3.14159265)
    times_kept = readers.asked(scene, "main_type_user", "SELECT id FROM t WHERE data IS NOT NULL")
    assert sorted(id for (id,) in times_kept) == ["ms", "ns", "odd", "s5", "time"]
    assert batch.left == {"video": len(whole), "user": 5}


def test_times_outside_the_years_1_to_9999(scene: Scene) -> None:
    """Other readers cannot represent them, so no column has them; `data` has their text."""
    schema = """{"user": {"when": "timestamp", "day": "date", "many": "array<timestamp>",
        "part": "struct<t:timestamp>"}}"""
    far = "10000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "0000-06-01T00:00:00Z"
    beyond = {
        f"{key}{at}": f'{{"{key}":{form % time}}}'
        for key, form in (("when", '"%s"'), ("many", '[null,"%s"]'), ("part", '{"t":"%s"}'))
        for at, time in enumerate(far)
    }
    beyond |= {"day0": '{"day":"0000-01-01"}', "day9": '{"day":"10000-01-01"}'}
    beyond |= {"many3": '{"many":["x"]}', "day2": '{"day":"2026-02-30"}'}
    inside = {"last": '{"when":"9999-12-31T23:59:59.999999Z","part":{"t":null},"many":[]}'}
    lines = [_line(id, text, "user") for id, text in (beyond | inside).items()]
    scene.put(kept(1, *lines))
    (batch,) = scene.follow(schema)
    assert batch.left == {"user": len(beyond)}
    columns = "concat_ws('', `when`, day, array_join(many, ''), part.t) AS found", "data"
    written = scene.tables(schema).types["user"].table.rows().selectExpr("id", *columns).collect()
    found = {id: (text, data) for id, text, data in written}
    assert found.pop("last") == ("9999-12-31 23:59:59.999999", None)
    assert found == {id: ("", text) for id, text in beyond.items()}


def test_a_type_whose_table_fails_leaves_the_others(scene: Scene) -> None:
    """It is reported with its reason and counted in no place: the next run continues there, in the
    order of the log. The other tables are complete.
    """
    both = '{"video": {"n": "bigint"}, "user": {"n": "bigint"}}'
    scene.put(kept(1, _line("a", '{"n":1}'), _line("a", '{"n":1}', "user")))
    scene.follow(both)
    tables = scene.tables(both)
    video = tables.types["video"].table
    tables.session.sql(f"ALTER TABLE {video.name} ADD COLUMN strict bigint")
    tables.session.sql(f"ALTER TABLE {video.name} ADD COLUMN _file bigint COMMENT '_file'")
    tables.session.sql(f"ALTER TABLE {video.name} RENAME COLUMN id TO ident")
    scene.put(kept(2, _line("a", '{"n":2}'), _line("a", '{"n":2}', "user")))

    with pytest.raises(TypesFailed, match="video: Spark failed"):
        scene.follow(both)
    assert [(each.left, list(each.failed)) for each in scene.batches] == [({"user": 0}, ["video"])]
    assert scene.history() == scene.entries() and scene.latest() == fold(scene.entries())
    assert readers.asked(scene, "main_type_user", "SELECT id, n FROM t") == [("a", 2)]

    tables.session.sql(f"ALTER TABLE {video.name} RENAME COLUMN ident TO id")
    scene.put(kept(3, _line("b", '{"n":3,"_file":5}')))
    scene.follow(both)
    sql = "SELECT id, n, data__file FROM t ORDER BY id"
    assert readers.asked(scene, "main_type_video", sql) == [("a", 2, None), ("b", 3, 5)]


def test_types_with_any_name_are_asked(scene: Scene) -> None:
    """Each type has a view of its name; if that is the name of another view, it has the name of its
    table.
    """
    names = ["a`b", "a.b", "history", "select"]
    scene.put(kept(1, *(line(f"id{at}", type=name) for at, name in enumerate(names))))
    scene.follow(json.dumps(dict.fromkeys(names, columns.INFER)))

    def asked(view: str) -> Sequence[str]:
        sql = f"SELECT id FROM `{view.replace('`', '``')}`"
        found = run_query(scene.spark, scene.warehouse, scene.feed, sql)
        return [row["id"] for row in found.collect()]

    assert len(asked("history")) == len(names)
    views = ("a`b", "a.b", "type_history", "select")
    assert [asked(each) for each in views] == [["id0"], ["id1"], ["id2"], ["id3"]]


def _line(id: str, data: str, type: str = "video") -> str:
    return f'{line(id, type=type)[:-1]},"data":{data}}}'


def _put(scene: Scene, number: int, data: dict[str, dict[str, Any]]) -> None:
    scene.put(kept(number, *(_line(id, json.dumps(each)) for id, each in data.items())))


def _kept(scene: Scene) -> set[str]:
    rows = scene.tables('{"video": "infer"}').types["video"].table.rows()
    return {row["id"] for row in rows.where(F.col("data").isNotNull()).select("id").collect()}


def _check(scene: Scene, data: dict[str, dict[str, Any]]) -> None:
    """Check that each object is in the table, and that columns or `data` have all of its data."""
    table = scene.tables('{"video": "infer"}').types["video"]
    column_of = {each.key: each.name for each in table.columns()}
    rows = {row["id"]: row for row in readers.arrow(scene, "main_type_video").to_pylist()}
    assert rows.keys() == data.keys()
    for id, wanted in data.items():
        row = rows[id]
        whole = {} if row["data"] is None else json.loads(row["data"])
        assert not whole or whole == wanted, id
        for key, value in wanted.items():
            assert whole or str(row[column_of[key]]) in (str(value), f"{value}.0"), (id, key)
