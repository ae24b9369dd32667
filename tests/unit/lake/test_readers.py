"""Reads by other engines: PyIceberg, DuckDB and Spark agree with each other and with the feed."""

from __future__ import annotations

import json

from click.testing import CliRunner

from tests.unit.core.scene import line
from tests.unit.lake import readers
from tests.unit.lake.parts import Scene, fold, kept
from tidings.client.cli.main import main
from tidings.lake import tables as lake_tables
from tidings.lake.tables import Table

COLUMNS = """{
    "video": {"n": "bigint", "title": "string", "published": "timestamp",
              "tags_of": "array<string>", "stats": "struct<likes:bigint>",
              "rating": {"key": "Rating", "type": "double"}},
    "user": "infer"
}"""
VIDEOS = "SELECT id, n, title, year(published), stats.likes, rating, data FROM t ORDER BY id"


def test_engines_agree_with_the_feed(scene: Scene) -> None:
    """Objects are inserted, changed and deleted: before and after maintenance each engine reads the
    same rows, and the columns of a type without parsing JSON.
    """
    for number in range(1, 4):
        lines = [line(name, data={"n": number}) for name in "abc"[: 1 + number % 3]]
        scene.put(
            kept(
                number,
                *lines,
                line("d", event="delete" if number % 2 else "insert", data={"n": number}),
            )
        )
        scene.follow(COLUMNS)

    def check() -> None:
        history, latest, videos = readers.tables(scene)
        assert history == scene.entries() == scene.history()
        assert latest == fold(history) == scene.latest()
        assert videos == readers.living(history)
        (counted,) = readers.asked(scene, "main_type_video", "SELECT count(*), sum(n) FROM t")
        assert counted == (len(videos), sum(n for _, n in videos))

    check()
    tables = scene.tables(COLUMNS)
    before = {table.called: _files(table) for table in tables.all()}
    for table in tables.all():
        lake_tables.rewrite(table)
        table.session.sql(
            f"CALL lake.system.expire_snapshots('{table.name.partition('.')[2]}',"
            " older_than => current_timestamp(), retain_last => 1)"
        )
    after = {table.called: _files(table) for table in tables.all()}
    assert after["main_history"] < before["main_history"]
    assert after["main_latest"] < before["main_latest"]
    check()
    # No remaining snapshot has a position: the last rows do.
    assert scene.follow(COLUMNS) == []
    check()


def test_columns_of_a_type(scene: Scene) -> None:
    """A value goes into its column if it has the column's type. Data are kept as a whole if the
    columns do not have all of it: a wrong value, a key without a column, or no object at all.
    """
    fits = {"n": 1, "title": "x", "published": "2026-01-02T03:04:05Z", "stats": {"likes": 3}}
    number = int("1" * 3000)
    videos = [
        line("a", data=fits | {"Rating": 4, "tags_of": ["t"]}),
        line("b", data=fits | {"n": "one"}),
        line("c", data=fits | {"more": 1}),
        line("d", data=fits | {"stats": {"likes": 3, "shares": 1}}),
        line("e", data=[1]),
        line("f"),
        line("g", data={"n": 1.5, "title": {"de": "x"}, "Rating": 0.5}),
        line("h", data={"n": number}),
    ]
    users = [
        line("u", type="user", data={"firstName": "Ann", "age": 7}),
        line("v", type="user", data={"age": 7.5, "id": "x"}),
    ]
    scene.put(kept(1, *videos, *users))
    (batch,) = scene.follow(COLUMNS)

    found = {row[0]: row[1:] for row in readers.asked(scene, "main_type_video", VIDEOS)}
    assert found["a"] == (1, "x", 2026, 3, 4.0, None)
    assert found["b"][:4] == (None, "x", 2026, 3)
    assert found["c"][:4] == found["d"][:4] == (1, "x", 2026, 3)
    assert found["f"] == (None, None, None, None, None, None)
    assert found["g"][1:2] + found["g"][4:5] == ('{"de":"x"}', 0.5)
    whole = {id: json.loads(row[-1]) for id, row in found.items() if row[-1] is not None}
    lines = {each["id"]: each for each in map(json.loads, videos)}
    assert whole == {id: lines[id]["data"] for id in "bcdegh"}
    assert batch.left == {"video": 6, "user": 0}

    sql = "SELECT id, first_name, age, data_id FROM t ORDER BY id"
    assert readers.asked(scene, "main_type_user", sql) == [
        ("u", "Ann", 7.0, None),
        ("v", None, 7.5, "x"),
    ]
    scene.put(kept(2, line("u", type="user", data={"age": 8, "city": "Bonn"})))
    scene.follow(COLUMNS)
    sql = "SELECT id, age, city FROM t ORDER BY id"
    assert readers.asked(scene, "main_type_user", sql) == [("u", 8.0, "Bonn"), ("v", 7.5, None)]

    lake = ["--table", str(scene.folder / "lake"), "--json"]
    sql = "SELECT v.title, u.city FROM video v, user u WHERE v.id = 'a' AND u.city IS NOT NULL"
    asked = CliRunner().invoke(main, ["tables", "query", sql, *lake])
    assert json.loads(asked.stdout) == {"title": "x", "city": "Bonn"}


def test_a_time_that_readers_cannot_have_stays_in_the_data(scene: Scene) -> None:
    data = {"published": "10000-01-01T00:00:00Z"}
    scene.put(kept(1, line("a", data=data)))
    scene.follow(COLUMNS)
    (row,) = readers.arrow(scene, "main_type_video").to_pylist()
    assert (row["published"], json.loads(row["data"])) == (None, data)


def test_a_type_that_is_named_later_has_all_its_objects(scene: Scene) -> None:
    """They are taken from `latest`; a column that is added later has only later values."""
    scene.put(kept(1, line("a", data={"n": 1, "m": 1}), line("b", data={"n": 2})))
    scene.put(kept(2, line("b", event="delete")))
    scene.follow()
    scene.follow('{"video": {"n": "bigint"}}')

    sql = "SELECT id, n FROM t"
    assert readers.asked(scene, "main_type_video", sql) == [("a", 1)]

    scene.put(kept(3, line("c", data={"n": 3, "m": 3})))
    scene.follow('{"video": {"n": "bigint", "m": "bigint"}}')
    sql = "SELECT id, n, m FROM t ORDER BY id"
    assert readers.asked(scene, "main_type_video", sql) == [("a", 1, None), ("c", 3, 3)]


def _files(table: Table) -> int:
    found = table.metadata()
    assert found is not None
    return found.files
