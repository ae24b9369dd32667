"""Tests that share something dear share a worker; every test of a file does anyway."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests import scheduling

ROOT = Path(__file__).parents[2]


def test_folders_that_share_a_fixture_are_kept_together() -> None:
    """A conftest that makes one thing for all files of its folder has them on one worker."""
    assert {"tests/oplog", "tests/sync", "tests/infra"} <= scheduling.TOGETHER
    assert "tests/core" not in scheduling.TOGETHER


def test_folders_that_are_named_exist() -> None:
    """None is left in the order when it is gone from the tree, and none is there twice."""
    named = [*scheduling.FIRST, *scheduling.LAST]

    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
    assert len(named) == len(set(named))


class Item:
    """All that the order asks of a test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_long_folders_come_first_and_groups_are_not_torn() -> None:
    """A folder nobody named comes between; within a folder nothing moves."""
    given = [
        "tests/core/test_a.py::test_1",
        "tests/new/test_b.py::test_2[tests/oplog/x::y]",
        "tests/oplog/test_c.py::test_4",
        "tests/oplog/test_c.py::test_3",
        "tests/oplog/test_d.py::test_5",
    ]
    found = [item.nodeid for item in scheduling.in_order([Item(each) for each in given])]

    assert found == [*given[2:], given[1], given[0]]
    assert [group for group, _ in groupby(found, scheduling.group_of)] == [
        "tests/oplog",
        "tests/new/test_b.py",
        "tests/core/test_a.py",
    ]
