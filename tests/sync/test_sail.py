"""What Sail has to itself: its server, and a sync without Java from end to end."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F
from tidings.client.cli.main import main
from tidings.server.running import Server
from tidings.sync import sail, schemas, spark_session

from tests.sync.lines import line, written


@pytest.mark.skipif(sys.platform != "linux", reason="what closes its port is of Linux")
def test_nobody_else_reaches_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run whatever Python it is sent, by whoever has an account on the machine."""
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
    """Not that there is a stack trace below."""

    def fails(number: int) -> int:
        raise ValueError(f"not {number}")

    with sail.session() as session, pytest.raises(spark_session.SPARK_ERRORS) as caught:
        session.range(3, 4).select(F.udf(fails, schemas.LONG)("id")).collect()
    assert spark_session.sentence_of(caught.value) == "Spark failed: ValueError: not 3"


def test_a_feed_of_a_server_is_made_to_agree(tmp_path: Path) -> None:
    """Over HTTP; what is neither a line nor gzip is named as Spark names it."""
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
        assert f"{bad}:2: must be JSON" in sync(bad)[2]
        assert f"{packed}: what ends in .gz must be gzip: not a gzip file" in sync(packed)[2]
