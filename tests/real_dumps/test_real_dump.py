"""A real dump: a sample of this machine's package indexes. `make real-dump` takes all of two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.real_dumps.debian import Synced, dumped, indexes, objects, text_of
from tests.twin import Twin
from tidings.client.cli.main import main

ONE_IN = 40  # names: of Debian's main section, some 1,500
_DAYS = [f"2026-11-{day}T00:00:00Z" for day in (20, 21, 22)]


def _run(*arguments: str) -> tuple[int, str]:
    """Run in this process, with the existing session."""
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.stdout if done.exit_code == 0 else done.output


@pytest.mark.skipif(
    len(indexes()) < 2,
    reason="needs the package indexes of apt and two suites: sudo apt-get update",
)
def test_a_suite_its_updates_and_back(
    twin: Twin, feed: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Every object is as the index says, each time; only changes were sent. Both engines plan
    the same.
    """
    largest, *others = indexes()
    suite, updated = (text_of(paths, ONE_IN) for paths in ([largest], [largest, *others]))
    synced = Synced(twin, feed, tmp_path, _run)
    first = synced.sync(suite, _DAYS[0])
    more = synced.sync(updated, _DAYS[1], engines=("sail", "spark"))
    back = synced.sync(suite, _DAYS[2], "--max-delete-share", "1")
    found = synced.verify()

    assert first["creates"] == len(objects(suite)) > 100
    assert more["deletes"] == 0
    assert (back["creates"], back["updates"], back["deletes"]) == (
        0,
        more["updates"],
        more["creates"],
    )
    assert more["updates"] + more["creates"] > 0
    assert found["agreeing"] == first["creates"] + more["creates"]


def test_the_two_readings_of_an_index_agree() -> None:
    """The example and the check are different code; a field over several lines confuses neither."""
    text = (
        "Package: a\nSource: b (1)\nVersion: 1\nArchitecture: all\nTag: x,\n Section: no\n"
        "Section: s\nSHA256: 9\n\nPackage: c\nVersion: 2\nArchitecture: amd64\nSection: t\n"
        "Description: d\n .\n Package: no\nSHA256: 8\n\n"
    )
    *dump, end = [json.loads(line) for line in dumped(text, _DAYS[0]).splitlines()]

    assert end == {"tidings": "end", "lines": 2}
    assert {each.pop("timestamp") for each in dump} == {_DAYS[0]}
    assert {(each["type"], each["id"]): each for each in dump} == objects(text)
    assert len(dump) == 2


def test_a_package_that_stays_keeps_its_time(tmp_path: Path) -> None:
    """The time of the previous dump; a changed or new one has that of the new dump."""
    stanza = "Package: {}\nVersion: {}\nArchitecture: all\nSection: s\nSHA256: 9\n\n"
    before = tmp_path / "before"
    before.write_bytes(dumped(stanza.format("a", 1) + stanza.format("b", 1), _DAYS[0]))
    now = stanza.format("a", 1) + stanza.format("b", 2) + stanza.format("c", 1)
    found = [json.loads(line) for line in dumped(now, _DAYS[1], before).splitlines()[:-1]]

    assert [each["timestamp"] for each in found] == [_DAYS[0], _DAYS[1], _DAYS[1]]
