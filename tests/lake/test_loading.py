"""The archive as tables: every operation, and the latest of each object."""

from __future__ import annotations

import datetime as dt
from functools import partial

import pytest
from pyspark.sql import functions as F
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.model.cursors import Place
from tidings.lake.errors import Hole, Moved, PartGone
from tidings.lake.job import Wishes
from tidings.lake.tables import HISTORY, LATEST, Raced, Standing

from tests.core.scene import NOW, line
from tests.lake.dying import Losing
from tests.lake.parts import Scene, fold, kept

TABLES = Wishes(keep_parts=True)
_MOMENT = "yyyy-MM-dd HH:mm:ss.SSS"


def test_closed_parts_become_history_and_latest(scene: Scene) -> None:
    """
    Every operation of them, each once, and the fold, in which a deleted object is a tombstone;
    what is added later too. A second run commits nothing.
    """
    scene.put(kept(1, line("a"), line("b")), kept(2))
    scene.put(kept(3, line("a", event="delete")), kept(4))
    scene.put(kept(5, line("c")))

    first = scene.run(wishes=TABLES)
    history = scene.history()
    again = scene.run(wishes=TABLES)

    assert (first.loaded, first.through, again.loaded, again.through) == (3, 4, 0, 4)
    assert history == scene.entries()[:3] == scene.history()
    assert scene.latest() == fold(history)
    assert (scene.snapshots(HISTORY), scene.snapshots(LATEST)) == (1, 1)

    scene.put(kept(6, line("b", data=1)), kept(7))
    scene.put(kept(8))
    assert scene.run(wishes=TABLES).loaded == 2
    assert scene.latest() == fold(scene.entries())


def test_every_column_says_what_the_line_says(scene: Scene) -> None:
    """Whatever stands in data, which is kept as it was written and is never taken for a column."""
    number = "1" * 3000  # beyond what Spark's reader of JSON takes
    whole = line(
        'x,"data":1',
        "delete",
        parents=['a,"data":2}', "ü"],
        tags=["t"],
        changed=["c"],
        timestamp="0001-01-01T00:00:00.5Z",
        data={"id": "inner", "n": [1.0, None]},
    )
    plain, long = line("plain"), line("long", data=int(number))
    change = line_of(Change('"5"', ("t",)), name="c1", now_ms=NOW)
    scene.put(kept(1), kept(2, whole, plain, long, change))
    scene.put(kept(3))

    scene.run(wishes=TABLES)
    moment = F.date_format("timestamp", _MOMENT).alias("moment")  # Python knows no year 0
    told = scene.table(HISTORY).rows().select("*", moment).drop("timestamp")
    rows = told.orderBy("slot").collect()

    first, second, third, fourth = rows
    assert first["cursor"] == Place(2, 0, (NOW + 2_000) // 1000).encode()
    assert (first["event"], first["type"], first["id"]) == ("delete", "video", 'x,"data":1')
    assert (first["parents"], first["tags"], first["changed"]) == (
        ['a,"data":2}', "ü"],
        ["t"],
        ["c"],
    )
    assert first["moment"] == "0001-01-01 00:00:00.500"
    assert first["data"] == '{"id":"inner","n":[1.0,null]}'
    assert first["at"].replace(tzinfo=dt.UTC).timestamp() * 1000 == NOW + 2_000
    assert (second["data"], second["tags"]) == (None, None)
    assert (third["id"], third["data"]) == ("long", number)
    assert (fourth["type"], fourth["data"], fourth["parents"]) == ("change", '"5"', ["t"])
    assert [each["line"] for each in rows] == [whole, plain, long, change]
    assert [entry[1] for entry in scene.latest()] == [0, 1, 2]


def test_pages_that_are_missing_are_not_passed_over(scene: Scene) -> None:
    """The run says which they are and does nothing; unless that is wanted."""
    scene.put(kept(1, line("a")))
    scene.put(kept(5, line("b")))
    scene.put(kept(6))

    with pytest.raises(Hole, match="the pages 2 to 4"):
        scene.run(wishes=TABLES)
    assert scene.history() == []

    assert scene.run(wishes=Wishes(keep_parts=True, allow_gaps=True)).loaded == 2


def test_overlapping_parts_are_read_once(scene: Scene) -> None:
    """A writer that was overtaken leaves parts that hold the same pages."""
    pages = [kept(number, line("a")) for number in range(1, 8)]
    scene.put(*pages[:4])
    scene.put(*pages[1:3])
    scene.put(*pages[2:6])
    scene.put(pages[6])

    scene.run(wishes=TABLES)

    assert [page for page, _, _ in scene.history()] == [1, 2, 3, 4, 5, 6]


def test_another_table_is_not_begun_with_what_is_left(scene: Scene) -> None:
    """Compacted parts do not hold every operation: only their own table does."""
    scene.put(kept(1, line("a"), line("a")))
    scene.put(kept(2))
    scene.run()
    other = Scene(scene.spark, scene.folder / "other")
    (scene.folder / "other").mkdir()
    (scene.folder / "other" / "parts").symlink_to(scene.folder / "parts")

    with pytest.raises(Moved, match="page 1 was compacted"):
        other.run()

    assert other.history() == []
    assert len(scene.history()) == 2


def test_what_a_chained_feed_copied_in_part_is_whole(scene: Scene) -> None:
    """It is all that the feed ever had of the page, and was not compacted."""
    page = kept(1, line("a"), line("b"), line("c"))
    scene.put(page.only([(0, page.lines[0]), (2, page.lines[2])]))
    scene.put(kept(2))
    scene.run(wishes=TABLES)

    assert [(page, slot) for page, slot, _ in scene.history()] == [(1, 0), (1, 2)]


def test_a_run_that_was_overtaken_commits_nothing(scene: Scene) -> None:
    """Two runs read the same parts: the second to commit is refused, so nothing is doubled."""
    scene.put(kept(1, line("a")))
    scene.put(kept(2))
    scene.run(wishes=TABLES)
    table = scene.table(HISTORY)
    rows = table.session.createDataFrame(table.rows().toArrow(), table.rows().schema)

    with pytest.raises(Raced):
        table.commit(rows, F.col("page") > 0, 1, Standing(0, 0))

    assert len(scene.history()) == 1


def test_a_part_that_is_gone_is_told_by_its_name(scene: Scene) -> None:
    """Another run compacts at the same time: this one ends, and nothing is committed."""
    scene.put(kept(1, line("a")))
    scene.put(kept(2))

    with pytest.raises(
        PartGone, match=r"the part 0000000000001-0000000000001.ndjson.gz was removed"
    ):
        scene.run(opens=partial(Losing, scene.folder / "parts"), wishes=TABLES)

    assert scene.history() == []
