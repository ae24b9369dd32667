"""Compaction through the real job: the remaining entries, the merged parts, and the state after a
kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tests.unit.core.archive.selecting import select_entries
from tests.unit.core.scene import NOW, line
from tests.unit.lake.dying import Dying, Killed, Losing
from tests.unit.lake.parts import Scene, fold, kept
from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.archive.compaction import PAGE_BYTES
from tidings.core.archive.reader import ArchiveReader
from tidings.core.archive.segments import Span
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.model.operations import ERASED_MARK
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.lake.compaction import Archive, CompactionOptions
from tidings.lake.warehouse import PartGone

AT = "2026-01-01T00:00:00Z"


def test_T17_the_last_part_and_what_is_above_the_bound_stay(scene: Scene) -> None:
    """An archive with no part or one part is not compacted, and later parts are kept; nor is a part
    that extends above the bound.
    """
    none = scene.compact()
    assert (none.parts, none.through, none.bound) == (0, 0, 0)
    scene.put(kept(1, line("a"), line("a")))
    only = scene.compact()
    assert (only.through, only.operations, only.written) == (0, 0, 0)

    scene.put(kept(2, line("a")), kept(3, line("a")))
    scene.put(kept(4, line("a")))
    scene.put(kept(5, line("a")))
    before = scene.entries()
    assert scene.compact().written == 0  # no table has what it would lose
    scene.follow()
    assert scene.compact(options=CompactionOptions(page=0)).written == 0
    assert scene.entries() == before

    some = scene.compact(options=CompactionOptions(page=2))
    assert (some.bound, some.operations, some.left) == (1, 2, 1)
    assert scene.entries() == before[1:]
    every = scene.compact()
    assert (every.bound, every.left, every.written, every.removed) == (4, 1, 1, 3)
    assert scene.entries() == before[-2:]
    assert scene.compact().written == 0
    assert scene.history() == before


def test_T19_T21_each_object_keeps_its_last_operation_and_each_page_its_place(scene: Scene) -> None:
    """Deletes and changes are kept, entries keep their slots, and a cursor at any page can be
    resumed, even if its own entry was removed.
    """
    change = line_of(Change("1", ("t",)), name="c", now_ms=NOW)
    scene.put(kept(1, line("a"), line("b"), change), kept(2, line("a")))
    scene.put(kept(3), kept(4, line("b", event="delete"), line("a/b", type="x"), line("c")))
    scene.put(kept(5, line("a", event="delete")), kept(6, line("c")))
    scene.put(kept(7, line("c")))
    before, pages = scene.entries(), scene.pages()

    scene.follow()
    report = scene.compact()

    closed = [each for each in before if each[0] <= 6]
    places = {each[:2] for each in scene.entries() if each[0] <= 6}
    assert places == select_entries(each for each in pages if each.number <= 6)
    assert places == {(1, 2), (4, 0), (4, 1), (5, 0), (6, 0)}
    assert (report.operations, report.left) == (len(closed), 5)
    assert fold(scene.entries()) == fold(before)
    assert scene.history() == before
    reader = ArchiveReader(scene.store, _uncounted)
    for after in range(7):
        assert reader.read(scene.feed, after, 7)[0].number == after + 1
        assert [at.at_ms for at in scene.pages()] == [at.at_ms for at in pages]


def test_erased_entries_go_and_erasure_entries_stay(scene: Scene) -> None:
    """The job selects the same entries as the core."""
    entry = encode_entry(Entry("video", "a", "ann", "asked"), now_ms=NOW)
    erased = f'{{"event":"delete","timestamp":"{AT}","parents":[],"type":"video","id":"erased:2"'
    scene.put(kept(1, f"{erased}{ERASED_MARK}", line("b")), kept(2, entry))
    scene.put(kept(3, line("a")), kept(4, f"{erased}{ERASED_MARK}"))
    scene.put(kept(5))
    closed = scene.pages()[:-1]
    scene.follow()

    scene.compact()

    assert {each[:2] for each in scene.entries()} == select_entries(closed)
    assert {each[:2] for each in scene.entries()} == {(1, 1), (2, 0), (3, 0)}


class Erased(FolderArchive):
    """During the first call of *at*, `get` or `put`, an erasure rewrites each part."""

    def __init__(self, folder: Path, at: str) -> None:
        super().__init__(folder)
        self._at, self._old = at, [""]

    def get(self, feed: str, span: Span) -> bytes | None:
        body = super().get(feed, span)
        self._erase(feed, "get")
        return body

    def put(self, feed: str, span: Span, body: bytes) -> None:
        self._erase(feed, "put")
        super().put(feed, span, body)

    def _erase(self, feed: str, at: str) -> None:
        if at != self._at or not self._old:
            return
        self._old.clear()
        for span in self.list(feed, 0, 10):
            pages = segments.decode(super().get(feed, span) or b"")
            new = [replace(page, body=page.text.replace("secret", "")) for page in pages]
            super().put(feed, *segments.encode(new))


@pytest.mark.parametrize(("at", "parts"), [("get", 1), ("get", 2), ("put", 2)])
def test_an_erasure_at_the_same_time_is_not_undone(tmp_path: Path, at: str, parts: int) -> None:
    """The parts are read again, so the new part cannot have what the erasure has removed."""
    store = Erased(tmp_path, at)
    written = [segments.encode([kept(n, line("a", data="secret"))]) for n in range(1, parts + 1)]
    for span, body in written:
        FolderArchive(tmp_path).put("main", span, body)

    Archive("main", lambda: store).rewrite([span for span, _ in written], [(1, 0), (2, 0)])

    merged = store.get("main", Span(last=parts, first=1))
    assert merged is not None
    texts = [page.text for page in segments.decode(merged)]
    assert len(texts) == parts
    assert not any("secret" in text for text in texts)


def test_changes_may_go_if_that_is_said(scene: Scene) -> None:
    """They are in the history then."""
    change = line_of(Change("1"), name="c", now_ms=NOW)
    scene.put(kept(1, change, line("a")))
    scene.put(kept(2))

    scene.follow()
    scene.compact(options=CompactionOptions(changes=False))

    assert [each[:2] for each in scene.entries()] == [(1, 1)]
    assert [each[:2] for each in scene.history()] == [(1, 0), (1, 1)]


def test_only_what_is_old_enough(scene: Scene) -> None:
    """The age is the commit time of a part's last page."""
    for number in range(1, 6):
        scene.put(kept(number, line("a")))

    scene.follow()
    report = scene.compact(options=CompactionOptions(before_ms=NOW + 3_000))

    assert (report.bound, report.left) == (3, 1)


def test_a_dry_run_tells_and_changes_nothing(scene: Scene) -> None:
    """The counts are those of the run that follows."""
    for number in range(1, 4):
        scene.put(kept(number, line("a")))
    before = scene.spans()
    scene.follow()

    told = scene.compact(options=CompactionOptions(dry_run=True))

    assert scene.spans() == before
    assert scene.compact() == told


PHASES = ("comparing", "writing parts")
CALLS = ("before put", "after put", "before remove", "after remove")


def test_killed_at_every_step_nothing_is_missing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are killed at one step after the other: parts and history together have every operation,
    the fold of the parts stays the same, and every page is found.
    """
    monkeypatch.setattr(limits, "ARCHIVE_PART_BYTES", 4 * PAGE_BYTES + 1_000)
    for first in range(1, 11, 2):
        lines = [line("ab"[number % 2], data=number) for number in range(3)]
        scene.put(kept(first, *lines), kept(first + 1, line("c")))
    before, pages = scene.entries(), scene.pages()
    scene.follow()

    for step in PHASES:
        with pytest.raises(Killed):
            _run_until(scene, step)
        _check(scene, before, pages)
    fired = scene.folder / "fired"
    for step in CALLS:
        with pytest.raises((Killed, PySparkException, Py4JJavaError)):
            scene.compact(opens=partial(Dying, scene.folder / "parts", step, fired))
        _check(scene, before, pages)
    with pytest.raises(Killed):
        _run_until(scene, "removing parts")

    report = scene.compact()
    _check(scene, before, pages)
    assert set(fired.read_text().splitlines()) == set(CALLS)
    assert (report.left, scene.spans()[:-1]) == (3, [Span(6, 1), Span(8, 7)])
    assert scene.history() == before


def _run_until(scene: Scene, step: str) -> None:
    class Phases(list[str]):
        def append(self, name: str) -> None:
            if name == step:
                raise Killed

    scene.phases = Phases()
    try:
        scene.compact()
    finally:
        scene.phases = []


def _check(scene: Scene, before: list[tuple[int, int, str]], pages: list[Page]) -> None:
    found = scene.entries()
    assert set(found) <= set(before)
    assert fold(found) == fold(before)
    for page in pages:
        number = page.number
        assert scene.store.list(scene.feed, number - 1, 1)[0].holds(number)
    assert list(_last(scene)) == [each for each in before if each[0] > 8]


def _last(scene: Scene) -> Iterator[tuple[int, int, str]]:
    return (each for each in scene.entries() if each[0] > 8)


def _uncounted(metric: str, value: int) -> None:
    raise AssertionError(metric)


def test_a_part_that_is_gone_is_told_by_its_name(scene: Scene) -> None:
    """Another run compacts at the same time: this one ends, and puts nothing."""
    scene.put(kept(1, line("a")))
    scene.put(kept(2))
    scene.follow()

    with pytest.raises(
        PartGone, match=r"the part 0000000000001-0000000000001.ndjson.gz was removed"
    ):
        scene.compact(opens=partial(Losing, scene.folder / "parts"))

    assert [span.last for span in scene.spans()] == [2]
