"""What is unpacked is bounded, whatever its packed bytes promise."""

from __future__ import annotations

import gzip
import zlib

import pytest

from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.errors import BrokenPart
from tidings.core.model.pages import GZIP, Page, inflate
from tidings.core.state.removed_parents import RemovedParents


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_what_fits_comes_back(size: int) -> None:
    """Up to the limit itself, in both formats."""
    plain = b"x" * size
    assert inflate(zlib.compress(plain), 100) == plain
    assert inflate(gzip.compress(plain), 100, GZIP) == plain


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (gzip.compress(b"x" * 101, mtime=0), "more than 100"),
        (gzip.compress(b"x" * 10_000_000, mtime=0), "more than 100"),
        (gzip.compress(b"x" * 50, mtime=0)[:-1], "end is missing"),
        (gzip.compress(b"x", mtime=0) + b"y", "follows"),
        (gzip.compress(b"x", mtime=0) + gzip.compress(b"y", mtime=0), "follows"),
        (b"", "end is missing"),
        (b"no gzip", "incorrect header"),
    ],
)
def test_anything_else_is_refused(packed: bytes, why: str) -> None:
    """And unpacked no further than to the limit."""
    with pytest.raises(zlib.error, match=why):
        inflate(packed, 100, GZIP)


def test_every_reader_of_packed_bytes_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, what they removed, and parts of the archive."""
    for name in ("PAGE_TEXT_BYTES_MAX", "ARCHIVE_UNPACKED_BYTES_MAX"):
        monkeypatch.setattr(limits, name, 1000)
    bomb = zlib.compress(b" " * 1001)
    with pytest.raises(zlib.error):
        _ = Page(1, bomb, "a", 0).text
    with pytest.raises(zlib.error):
        _ = RemovedParents(1, bomb).left
    with pytest.raises(BrokenPart, match="more than 1000 bytes"):
        segments.decode(gzip.compress(b" " * 1001))
