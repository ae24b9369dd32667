"""What Sail has to itself: its server, and a sync without Java from end to end."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from tests.unit.sync.lines import line, written
from tidings.client.cli.main import main
from tidings.server.running import Server
from tidings.spark.reader import TidingsSource
from tidings.sync import engine as engines
from tidings.sync import sail, spark_session
from tidings.sync.job import parse_types


@pytest.mark.skipif(sys.platform != "linux", reason="what closes its port is of Linux")
def test_nobody_else_reaches_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server runs any Python that a user of the machine sends it."""
    at: list[tuple[str, int]] = []
    close = sail._close_to_others

    def closed(*address: Any) -> None:
        at.append(address)
        close(*address)

    monkeypatch.setattr(sail, "_close_to_others", closed)

    with sail.session() as session:
        with pytest.raises(OSError, match="timed out"):
            socket.create_connection(at[0], timeout=0.3)
        assert session.range(7).count() == 7


def test_what_python_raised_is_told() -> None:
    """The error is not only a reference to a stack trace."""

    def fails(number: int) -> int:
        raise ValueError(f"not {number}")

    with sail.session() as session, pytest.raises(spark_session.SPARK_ERRORS) as caught:
        session.range(3, 4).select(F.udf(fails, engines.LONG)("id")).collect()
    assert spark_session.sentence_of(caught.value) == "Spark failed: ValueError: not 3"


def test_how_much_was_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a dump as they are on disk, packed or not, then buckets of the state."""
    shown: list[tuple[int, int] | None] = []
    engine, advance = sail.Sail(), sail._Reading.advance

    def advanced(reading: sail._Reading, count: int) -> None:
        advance(reading, count)
        shown.append(engine.progress(session))

    monkeypatch.setattr(sail, "_READ_BYTES", 100)
    monkeypatch.setattr(sail._Reading, "advance", advanced)
    plain = written(tmp_path / "a", [line(f"a{number}", 1) for number in range(20)])
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(Path(plain).read_bytes()))
    size = Path(plain).stat().st_size + packed.stat().st_size

    numbers = engines.columns(number=engines.LONG)
    with sail.session() as session:
        assert engine.text(session, [plain, str(packed)]).count() == 40
        bytes_of_dump = [each for each in shown if each]
        shown.clear()
        assert engine.rows(session, 16, _row_of_each, numbers).count() == 16
        buckets = [each for each in shown if each]
    assert bytes_of_dump[0] == (100, size) and shown[-1] is None
    assert bytes_of_dump == sorted(bytes_of_dump) and len(bytes_of_dump) > 10
    assert {done for done, _ in buckets} >= {1, 15} and {total for _, total in buckets} == {16}


def _row_of_each(numbers: Iterable[int]) -> Iterator[tuple[int]]:
    return ((number,) for number in numbers)


def test_a_feed_of_a_server_is_made_to_agree(tmp_path: Path) -> None:
    """The sync runs over HTTP; a bad line or gzip file is reported as Spark reports it."""
    with Server() as server:

        def sync(dump: str) -> tuple[int, str, str]:
            options = ["--engine", "sail", "--max-delete-share", "1", "--json"]
            done = CliRunner().invoke(main, ["sync", dump, "--url", server.url, *options])
            return done.exit_code, done.stdout, done.stderr

        code, said, _ = sync(written(tmp_path / "a [1]*", [line("a", 1), line("gone", 1)]))
        assert (code, json.loads(said)["applied"]) == (0, 2)
        code, said, _ = sync(written(tmp_path / "b", [line("a", 2), line("b", 2)]))
        counts = json.loads(said)
        done = [counts[each] for each in ("creates", "updates", "deletes", "applied", "objects")]
        assert (code, done) == (0, [1, 1, 1, 3, 2])

        bad = written(tmp_path / "c", [line("a", 3), b"\xff"])
        packed = written(tmp_path / "d.gz", [line("a", 3)])
        assert f"{bad}:2: must be UTF-8" in sync(bad)[2]
        assert f"{packed}: a file that ends in .gz must be gzip: not a gzip file" in sync(packed)[2]


def test_types_are_a_list_or_a_json_array() -> None:
    assert parse_types("Video, u/r,") == {"video", "u%2Fr"}
    assert parse_types('["a,B"]') == {"a,b"}


@pytest.mark.parametrize(
    ("pattern", "atomic"),
    [
        (r"\[(?:a(?:, ?+a){0,63}+)?+\]", r"\[(?>(?:a(?>(?:, ?+a){0,63}))?)\]"),
        (r"(?:[(]\)a)++x(y)+z(y)?", r"(?>(?:[(]\)a)+)x(y)+z(y)?"),
        (r"[^])]*(a|(b)*+)", r"[^])]*(a|(?>(b)*))"),
    ],
)
def test_possessive_groups_become_atomic(pattern: str, atomic: str) -> None:
    """Python 3.11.2 matches `["a",]` with the possessive form of the first pattern."""
    assert sail._atomic(pattern) == atomic


def test_the_data_source_is_refused() -> None:
    """Sail would read a stream as one batch, without a checkpoint."""
    with sail.session() as session:
        session.dataSource.register(TidingsSource)
        stream = session.readStream.format("tidings").option("url", "http://127.0.0.1:1").load()
        with pytest.raises(spark_session.SPARK_ERRORS, match="needs Apache Spark"):
            stream.writeStream.format("console").start()
