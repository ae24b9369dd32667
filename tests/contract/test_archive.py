"""Every archive keeps to `ArchiveStore`: in memory, in a folder, and on S3 by moto."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.fakes import MemoryArchive, MemoryLedger
from tidings.aws import clients
from tidings.aws.archives import open_archive, open_ledger
from tidings.aws.s3 import S3Archive
from tidings.core.archive.generations import begin, lost_parts, remove_lost
from tidings.core.archive.segments import ArchiveStore, Generation, Span, encode
from tidings.core.erasure.records import Erasure, Ledger
from tidings.core.errors import TooLarge, Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.http.settings import WrongArchive

BUCKET = "archive"
PARTS = [Span(last=9, first=1), Span(last=10, first=10), Span(last=1200, first=11)]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Archive]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield S3Archive(clients.objects.__wrapped__, BUCKET, "kept/")


@pytest.fixture(params=["memory", "folder", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "memory":
        return MemoryArchive()
    if request.param == "folder":
        return FolderArchive(tmp_path)
    s3: S3Archive = request.getfixturevalue("s3")
    return s3


def test_a_part_comes_back(archive: ArchiveStore, feed: str) -> None:
    """By its span and its feed; an unknown part is None."""
    archive.put(feed, PARTS[0], b"\x1f\x8b\x00part")

    assert archive.get(feed, PARTS[0]) == b"\x1f\x8b\x00part"
    assert archive.get(feed, PARTS[1]) is None
    assert archive.get(f"{feed}-other", PARTS[0]) is None


def test_parts_are_listed_from_a_page_on(archive: ArchiveStore, feed: str) -> None:
    """The parts that end after it, ordered by their last pages, as many as requested."""
    for span in reversed(PARTS):
        archive.put(feed, span, span.name.encode())
    archive.put(f"{feed}.x", Span(last=5, first=5), b"of another feed")

    assert list(archive.list(feed, 0, 10)) == PARTS
    assert list(archive.list(feed, 8, 10)) == PARTS
    assert list(archive.list(feed, 9, 10)) == PARTS[1:]
    assert list(archive.list(feed, 10, 10)) == PARTS[2:]
    assert list(archive.list(feed, 1200, 10)) == []
    assert list(archive.list(feed, 0, 2)) == PARTS[:2]
    assert list(archive.list(f"{feed}-none", 0, 2)) == []


def test_parts_that_overlap_are_all_listed(archive: ArchiveStore, feed: str) -> None:
    """Also where two of them end with the same page."""
    spans = [Span(last=9, first=1), Span(last=9, first=4), Span(last=12, first=1)]
    for span in spans:
        archive.put(feed, span, b"x")

    assert list(archive.list(feed, 0, 10)) == spans
    assert list(archive.list(feed, 9, 10)) == spans[2:]


def test_a_part_is_replaced_whole(archive: ArchiveStore, feed: str) -> None:
    """A shorter body leaves nothing of the longer one."""
    archive.put(feed, PARTS[0], b"longer")
    archive.put(feed, PARTS[0], b"new")

    assert archive.get(feed, PARTS[0]) == b"new"
    assert list(archive.list(feed, 0, 10)) == PARTS[:1]


def test_the_size_of_all_parts(archive: ArchiveStore, feed: str) -> None:
    """The parts of this feed, as they are now; without parts it is 0."""
    sizes: Any = archive  # the port does not contain the operators' methods
    assert sizes.size(feed) == 0
    for span, body in zip(PARTS, (b"1", b"22", b"333"), strict=True):
        archive.put(feed, span, body)
    archive.put(f"{feed}-other", PARTS[0], b"4444")

    assert sizes.size(feed) == 6


def test_a_part_is_removed(archive: ArchiveStore, feed: str) -> None:
    """Twice is as good as once; others stay."""
    for span in PARTS:
        archive.put(feed, span, b"x")
    archive.remove(feed, PARTS[1])
    archive.remove(feed, PARTS[1])

    assert archive.get(feed, PARTS[1]) is None
    assert list(archive.list(feed, 0, 10)) == [PARTS[0], PARTS[2]]


def test_a_generation_continues_an_earlier_one(archive: ArchiveStore, feed: str) -> None:
    """Parts of the earlier one with later pages are hidden, even if they are written afterwards."""
    old, cut = [Span(9, 1), Span(12, 10)], Generation(0, 9, 20)
    for span in old:
        archive.put(feed, span, b"old")
    assert archive.generations(feed) == {}
    assert archive.begin(feed, 1, cut) and not archive.begin(feed, 1, replace(cut, kept=0))
    assert archive.generations(feed) == {1: cut}
    new = [Span(21, 10, 1), Span(25, 22, 1)]
    for span in (*new, Span(22, 13)):
        archive.put(feed, span, b"new" if span.generation else b"late")
    assert list(archive.list(feed, 0, 9)) == [old[0], *new]
    assert list(archive.list(feed, 0, 2)) == [old[0], new[0]]
    assert list(archive.list(feed, 21, 9)) == new[1:]
    assert archive.get(feed, new[0]) == b"new"
    assert list(archive.parts(feed, 0, 9, 9)) == lost_parts(archive, feed) == [old[1], Span(22, 13)]
    assert archive.size(feed) == 16  # type: ignore[attr-defined]
    assert archive.generations(f"{feed}-other") == {}


def test_two_restores(archive: ArchiveStore, feed: str) -> None:
    """The last one decides what is read, whichever generation it continues."""
    assert [begin(archive, feed, Generation(0, kept, 20)) for kept in (5, 9)] == [1, 2]
    for span in (Span(5, 1), Span(9, 6), Span(12, 10), Span(21, 6, 1), Span(21, 10, 2)):
        archive.put(feed, span, b"part")
    assert list(archive.list(feed, 0, 9)) == [Span(5, 1), Span(9, 6), Span(21, 10, 2)]
    assert remove_lost(archive, feed) == 2
    assert begin(archive, feed, Generation(1, 21, 30)) == 3
    assert list(archive.list(feed, 0, 9)) == [Span(5, 1)]


def test_a_generation_that_came_from_another_archive(archive: ArchiveStore, feed: str) -> None:
    """Its record is missing: the parts of the generation are all that is read."""
    archive.put(feed, Span(25, 22, 3), b"part")
    assert list(archive.list(feed, 0, 9)) == [Span(25, 22, 3)]
    assert begin(archive, feed, Generation(3, 25, 30)) == 4
    assert list(archive.list(feed, 0, 9)) == [Span(25, 22, 3)]


def test_more_parts_than_s3_lists_at_once(s3: S3Archive) -> None:
    """A listing continues at the end of an answer of S3, and other objects are left out."""
    spans = [Span(last=number, first=number) for number in range(1, 1004)]
    for span in spans:
        s3.put("main", span, b"")
    boto3.client("s3").put_object(Bucket=BUCKET, Key="kept/archive/main/0000000000500-notes.txt")

    assert list(s3.list("main", 0, 5000)) == spans
    assert list(s3.list("main", 2, 1000)) == spans[2:1002]


def test_a_part_that_nobody_could_hold_is_not_read(
    s3: S3Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator put it there: it is not loaded into memory."""
    monkeypatch.setattr("tidings.aws.s3.PART_BYTES_MAX", 3)
    s3.put("main", Span(last=1, first=1), b"four")

    with pytest.raises(TooLarge):
        s3.get("main", Span(last=1, first=1))


def test_a_write_that_was_cut_leaves_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is stored completely or not at all, without any other files."""
    archive = FolderArchive(tmp_path)

    def cut(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", cut)
    with pytest.raises(OSError, match="no space"):
        archive.put("main", Span(last=1, first=1), b"x")

    assert list(archive.list("main", 0, 10)) == []
    assert list((tmp_path / "archive" / "main").iterdir()) == []


def test_an_address_says_which_archive_it_is(tmp_path: Path, s3: S3Archive) -> None:
    """A bucket with or without a prefix, or a folder, also with a blank in its name."""
    span, folder = Span(last=1, first=1), tmp_path / "a b"
    opened = {
        url: open_archive(url, clients.objects.__wrapped__)
        for url in (f"s3://{BUCKET}", f"s3://{BUCKET}/kept/", folder.as_uri())
    }
    for url, archive in opened.items():
        archive.put("main", span, url.encode())

    assert s3.get("main", span) == f"s3://{BUCKET}/kept/".encode()
    assert (folder / "archive" / "main" / span.name).read_bytes() == folder.as_uri().encode()


@pytest.mark.parametrize("url", ["", "archive", "s3://", "http://a/b", "file://host/a", "file:///"])
def test_any_other_address_is_refused(url: str) -> None:
    """With the rule, before anything is asked of S3."""
    with pytest.raises(WrongArchive, match="must be s3://BUCKET/PREFIX or file:///FOLDER"):
        open_archive(url, clients.objects)


@pytest.fixture(params=["memory", "folder", "s3"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    if request.param == "folder":
        return open_ledger(tmp_path.as_uri(), clients.objects)
    request.getfixturevalue("s3")
    return open_ledger(f"s3://{BUCKET}/kept", clients.objects.__wrapped__)


def test_erasures_are_in_the_ledger_until_they_are_removed(ledger: Ledger, feed: str) -> None:
    """Each feed has its own; removing an unknown one does nothing."""
    first, second = (
        Erasure(Place(page, 0, 9).encode(), "video", "ä/b", "ann", "why", 9, "", as_parent=True)
        for page in (1, 2)
    )
    assert list(ledger.entries(feed)) == []
    for each in (first, second, second):
        ledger.add(feed, each)
    ledger.add(f"{feed}.x", first)
    assert list(ledger.entries(feed)) == [first, second]
    for _ in range(2):
        ledger.remove(feed, first.id)
    assert list(ledger.entries(feed)) == [second]
    assert list(ledger.entries(f"{feed}.x")) == [first]


def test_a_folder_of_another_host_is_not_overwritten(tmp_path: Path, feed: str) -> None:
    """Its page was committed at another time; the same page may be written again."""
    archive, page = FolderArchive(tmp_path), Page(7, "{}", "", 1_000)
    span, theirs = encode([page])
    archive.put(feed, span, theirs)
    archive.put(feed, span, theirs)
    for pages in ([7], [6, 7], [7, 8]):
        ours = encode([replace(page, number=each, at_ms=2_000) for each in pages])
        with pytest.raises(Unavailable, match=r"another page 7.*TIDINGS_ARCHIVE"):
            archive.put(feed, *ours)
    assert archive.get(feed, span) == theirs
    archive.put(feed, *encode([replace(page, number=8, at_ms=2_000)]))
