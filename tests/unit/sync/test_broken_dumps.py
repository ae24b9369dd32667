"""Dumps with bytes that are not text: reported with file, line and reason, skipped on request."""

from __future__ import annotations

import bz2
import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.sync.engines import on_both
from tests.unit.sync.lines import line
from tests.unit.sync.test_diff import ALL, Rows, planned
from tidings.core.model.operations import data_of
from tidings.sync.dump import BadDump, BadFile
from tidings.sync.job import Job, Stopped

GOOD = [line(f"x{number}", number % 60) for number in range(900)]
INVALID = {
    "in an id": line("b\u00e9", 1).replace("\u00e9".encode(), b"\xe9"),
    "in data": line("b", 1)[:-1] + b',"data":"\xff"}',
    "a surrogate": line("b", 1)[:-1] + b',"data":"\xed\xa0\x80"}',
    "overlong": line("b", 1)[:-1] + b',"data":"\xc0\xaf"}',
    "cut off": line("b", 1)[:-1] + b',"data":"\xe2\x82"}',
    "in a name": line("b", 1)[:-1] + b',"da\xffta":1}',
    "nothing else": b"\xff",
    "too large": line("b", 1)[:-1] + b',"data":1e400}',
}
# Zstandard's frame of the two bytes "a\n".
ZSTD = bytes.fromhex("28b52ffd2002110000610a")
FORMATS = {
    "gzip data; name the file *.gz": gzip.compress(b"\n".join(GOOD)),
    "zstd data; use gzip": ZSTD,
    "bzip2 data; use gzip": bz2.compress(b"\n".join(GOOD)),
    "UTF-16": "\n".join(each.decode() for each in GOOD[:3]).encode("utf-16"),
    "UTF-32": "\n".join(each.decode() for each in GOOD[:3]).encode("utf-32"),
    "the byte 0, as in UTF-16 or tar": GOOD[0].decode().encode("utf-16-be"),
}
LONG = {
    "int": "1234567890123456789012345678901234567890",
    "fraction": "3.14159265358979323846264338327",
    "small": "-1e-400",
    "many": "[0.1,123456789.123456789123456789,{\"a\":1.00000000000000000001E+2}]",
    "text": '"#3.14159265358979323846264338327 ##"',
}  # fmt: skip


@on_both
def test_lines_that_are_not_utf8(session: SparkSession, tmp_path: Path) -> None:
    """Each is reported with its line and its byte, counted, and skipped if that many bad lines are
    allowed.
    """
    dump = [GOOD[0], *INVALID.values(), GOOD[1]]
    with pytest.raises(BadDump) as caught:
        planned(session, tmp_path, dump, [])
    said = [str(each) for each in caught.value.first]
    assert caught.value.count == len(said) == len(INVALID)
    for number, each in enumerate(said, 2):
        assert each.startswith(f"{tmp_path}/dump:{number}: "), each
    assert [" must be UTF-8, but is not (" in each for each in said] == [*[True] * 7, False]
    assert said[0].endswith("(invalid continuation byte at byte 27)")
    assert said[-1].endswith("data: must not hold a number beyond the range of a double")

    found, summary = planned(session, tmp_path, dump, [], replace(ALL, skip_bad=len(INVALID)))
    assert [each.key for each in found] == ["video/x0", "video/x1"]
    assert (summary.lines, summary.bad_lines) == (2, len(INVALID))


@on_both
def test_files_of_another_format(session: SparkSession, tmp_path: Path) -> None:
    """The first line says which format it is, whatever the file is called."""
    paths = [tmp_path / str(number) for number in range(len(FORMATS))]
    for path, text in zip(paths, FORMATS.values(), strict=True):
        path.write_bytes(text)
    for path, name in zip(paths, FORMATS, strict=True):
        with pytest.raises(BadDump) as caught:
            _job(session, tmp_path).make_plan([str(path)], Rows([]), through=7)
        assert str(caught.value.first[0]) == f"{path}:1: must be UTF-8, but is not ({name})"


@on_both
def test_gzip_data_that_are_cut_off(session: SparkSession, tmp_path: Path) -> None:
    """In the second of two members, or in its header: the file and the line are named."""
    one, two = gzip.compress(b"\n".join(GOOD) + b"\n"), gzip.compress(b"\n".join(GOOD))
    for number, left in enumerate((len(two) - 4, 7)):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(one + two[:left])
        with pytest.raises(Stopped) as caught:
            _job(session, tmp_path, {str(path): "stdin"}).make_plan(
                [str(path)], Rows([]), through=7
            )
        objection = caught.value.objection
        at = 2 * len(GOOD) if not number else len(GOOD) + 1
        assert objection.code == "truncated_dump"
        assert objection.sentence == f"the dump ends early: the gzip data of stdin:{at} are cut off"
    broken = tmp_path / "broken.gz"
    broken.write_bytes(one + b"other bytes")
    with pytest.raises(
        BadFile, match=rf"^{broken}(:{len(GOOD) + 1})?: a file that ends in .gz must be gzip"
    ):
        _job(session, tmp_path).make_plan([str(broken)], Rows([]), through=7)


def test_a_file_without_lines(session: SparkSession, tmp_path: Path) -> None:
    """It is named with its line and the limit, before Sail gets a line that it cannot transfer."""
    with pytest.raises(BadFile) as caught:
        planned(session, tmp_path, [GOOD[0], b"[" + b"1," * 17_000_000], [])
    rule = "line 2 must have at most 32,000,000 bytes; write an object per line"
    assert str(caught.value).endswith(f": cannot be read: {rule}")


@on_both
def test_numbers_keep_their_digits(session: SparkSession, tmp_path: Path) -> None:
    """Large integers, thirty decimals and tiny numbers, by Spark's own patterns or the core."""
    dump = [line(name, 1)[:-1] + f',"data":{text}}}'.encode() for name, text in LONG.items()]
    found, _ = planned(session, tmp_path, dump, [])
    data = {each.key: data_of(each.line).partition(',"data":')[2][:-1] for each in found}
    assert data == {f"video/{name}": text for name, text in LONG.items()}


@on_both
def test_a_file_named_zst(session: SparkSession, tmp_path: Path) -> None:
    """It is named with the reason, whether an engine tries to read it or not."""
    path = tmp_path / "dump.zst"
    path.write_bytes(ZSTD[:-3] + b"\xff" * 9)
    with pytest.raises((BadDump, BadFile)) as caught:
        _job(session, tmp_path).make_plan([str(path)], Rows([]), through=7)
    first = str(caught.value.first[0]) if isinstance(caught.value, BadDump) else str(caught.value)
    assert first.startswith(f"{path}:")


def _job(session: SparkSession, folder: Path, names: dict[str, str] | None = None) -> Job:
    return Job(session, str(folder / "work"), ALL, lambda name: None, names=names or {})
