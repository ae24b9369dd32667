"""Every archive keeps the contract: in memory, in a folder, and on S3 as moto emulates it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from tidings.aws.runtime import clients
from tidings.aws.s3.archive import S3Archive
from tidings.aws.s3.archives import open_archive
from tidings.core.archive.segments import Span
from tidings.core.archive.stores import ArchiveStore
from tidings.core.errors import TooLarge
from tidings.web.archive_url import WrongArchive
from tidings.web.outbound.folder_archive import FolderArchive

from tests.contract.archive_store import ArchiveStoreContract
from tests.fakes import MemoryArchive

BUCKET = "archive"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Archive]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield S3Archive(clients.objects.__wrapped__, BUCKET, "kept/")


class TestMemory(ArchiveStoreContract):
    @pytest.fixture
    def archive(self) -> ArchiveStore:
        return MemoryArchive()


class TestFolder(ArchiveStoreContract):
    @pytest.fixture
    def archive(self, tmp_path: Path) -> ArchiveStore:
        return FolderArchive(tmp_path)


class TestS3(ArchiveStoreContract):
    @pytest.fixture
    def archive(self, s3: S3Archive) -> ArchiveStore:
        return s3


def test_more_parts_than_s3_lists_at_once(s3: S3Archive) -> None:
    """A listing goes on where an answer of S3 ends, and what is no part is left out."""
    spans = [Span(last=number, first=number) for number in range(1, 1004)]
    for span in spans:
        s3.put("main", span, b"")
    boto3.client("s3").put_object(Bucket=BUCKET, Key="kept/archive/main/0000000000500-notes.txt")

    assert list(s3.list("main", 0, 5000)) == spans
    assert list(s3.list("main", 2, 1000)) == spans[2:1002]


def test_a_part_that_nobody_could_hold_is_not_read(
    s3: S3Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody put it there: memory is not risked for it."""
    monkeypatch.setattr("tidings.aws.s3.archive.PART_BYTES_MAX", 3)
    s3.put("main", Span(last=1, first=1), b"four")

    with pytest.raises(TooLarge):
        s3.get("main", Span(last=1, first=1))


def test_a_write_that_was_cut_leaves_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is there whole or not at all, and no half of it stays beside it."""
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
