"""Which tests one worker of pytest-xdist runs, and in which order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol, TypeVar

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pytest

# A conftest that makes one thing for all files of its folder: a twin, a Spark session, templates.
_FOR_MANY_FILES = re.compile(r'scope="(session|package)"')
_TESTS = Path(__file__).parent
# The servers of these folders start in seconds, and two workers take half as long with two of each.
_BY_FILE = {"tests/unit/pipelines"}
TOGETHER = (
    frozenset(
        f"tests/{conftest.parent.relative_to(_TESTS).as_posix()}"
        for conftest in _TESTS.glob("*/**/conftest.py")
        if _FOR_MANY_FILES.search(conftest.read_text())
    )
    - _BY_FILE
)

# The longest first, some minutes to one: begun at the end, it would run while others idle.
FIRST = (
    "tests/conformance",
    "tests/simulation",
    "tests/compat/chained",
    "tests/unit/admin",
    "tests/contract",
    "tests/docs",
    "tests/e2e",
    "tests/load",
    "tests/unit/sync",
    "tests/real_dumps",
    "tests/unit/lake",
    "tests/unit/spark",
    "tests/infra",
    "tests/iam",
    "tests/fuzz",
    "tests/unit/pipelines",
    "tests/compat/transporter",
    "tests/compat/oplog",
    "tests/model",
)

# Files of long tests that share nothing: any worker runs each of their tests.
APART = frozenset({"tests/simulation/test_mutations.py"})

# The suite of the protocol makes a host for each of its targets, which are its parameters.
_TARGET = re.compile(r"^tests/conformance/test_conformance\.py::test_law\[\w+")

# Many small files, which fill what is left.
LAST = ("tests/functions", "tests/style", "tests/unit/core")


class HasId(Protocol):
    """A test, as far as its order goes."""

    @property
    def nodeid(self) -> str: ...


Test = TypeVar("Test", bound=HasId)


def folders_of(nodeid: str) -> Sequence[str]:
    """Return the folders of a test, the nearest first."""
    return [parent.as_posix() for parent in PurePosixPath(nodeid.partition("::")[0]).parents]


def group_of(nodeid: str) -> str:
    """Return what one worker runs from beginning to end: a folder, a file, a target of the suite of
    the protocol, or a test of `APART`.
    """
    if target := _TARGET.match(nodeid):
        return target[0]
    file = nodeid.partition("::")[0]
    shared = (folder for folder in folders_of(nodeid) if folder in TOGETHER)
    return next(shared, nodeid if file in APART else file)


def in_order(items: Sequence[Test]) -> list[Test]:
    """Long folders first, then those that are not named here, then those of small files."""
    order = {folder: at for at, folder in enumerate((*FIRST, "", *LAST))}

    def place(item: Test) -> int:
        named = (order[folder] for folder in folders_of(item.nodeid) if folder in order)
        return next(named, order[""])

    return sorted(items, key=place)


class InGroups(LoadFileScheduling):  # type: ignore[misc]
    """Hands out `group_of` by `group_of`, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
