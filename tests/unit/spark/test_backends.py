"""Backends of a table: an archive of a feed that was restored, and events read over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.core.archive.segments import Generation, encode
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.events import content_of
from tidings.core.model.operations import ERASED_MARK, line_from
from tidings.core.model.pages import Page, jump
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.spark.backends import ArchiveBackend
from tidings.spark.http_backend import _line
from tidings.spark.options import Gone, Where
from tidings.spark.reader import is_ours


def _page(number: int, at_ms: int = 5000) -> Page:
    return Page(number, "{}", "", at_ms)


@pytest.mark.parametrize(
    ("page", "seconds", "ours"), [(3, 5, True), (5, 5, False), (8, 6, True), (9, 5, False)]
)
def test_a_place_that_a_restore_lost(
    tmp_path: Path, page: int, seconds: int, *, ours: bool
) -> None:
    """A reader there does not silently continue after the numbers that were skipped."""
    archive = FolderArchive(tmp_path)
    archive.put("main", *encode([_page(number) for number in range(1, 4)]))
    archive.begin("main", 1, Generation(0, 3, 7))
    later = [jump(4, 8, at_ms=6000, expires_ms=0), _page(9, 7000)]
    archive.put("main", *encode(later, 1))
    late = [_page(number) for number in range(4, 10)]  # of the stage before the restore
    archive.put("main", *encode(late))
    backend = ArchiveBackend(Where(archive=f"file://{tmp_path}"))
    place, ends = Place(page, PAGE_END, seconds), backend.ends()
    assert (ends.floor, ends.frontier.page) == (1, 9)
    assert is_ours(backend, place, ends) is ours
    if not ours:
        with pytest.raises(Gone):
            backend.place_or_copy(place)
    assert [each.number for each in backend.pages(0, 9)] == [1, 2, 3, 8, 9]


NOW = 1_763_000_000_000
HEAD = '{"event":"delete","timestamp":"2026-01-01T00:00:00Z","parents":[],"type":"video"'


@pytest.mark.parametrize(
    "line",
    [
        line_from({"event": "insert", "type": "video", "id": "x", "data": {"a": 1}}, now_ms=NOW),
        encode_entry(Entry("video", "x", "ann", 'asked","erase":true}', ("p",)), now_ms=NOW),
        f'{HEAD},"id":"erased:3"{ERASED_MARK}',
    ],
    ids=["operation", "erasure", "erased"],
)
def test_a_line_is_that_of_the_log(line: str) -> None:
    """Erasures keep their marks, with and without the address of the object."""
    name, data = content_of(line, erasures=True)

    assert _line(name, data) == line
    assert _line(name, f'{data[:-1]},"ref":"https://a.example/x"}}') == line
