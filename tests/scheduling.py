"""Which tests one worker of pytest-xdist runs, and in which order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pytest

# A conftest that makes one thing for all files of its folder: a twin, a Spark session, templates.
_FOR_MANY_FILES = re.compile(r'scope="(session|package)"')
TOGETHER = frozenset(
    f"tests/{conftest.parent.name}"
    for conftest in Path(__file__).parent.glob("*/conftest.py")
    if _FOR_MANY_FILES.search(conftest.read_text())
)

# By the CPU time that each takes, 180 s to 70: begun at the end, it would run while others idle.
FIRST = (
    "tests/oplog",
    "tests/conformance",
    "tests/pipeline",
    "tests/sync",
    "tests/lake",
    "tests/spark",
    "tests/infra",
    "tests/iam",
    "tests/fuzz",
    "tests/e2e",
    "tests/chained",
    "tests/docs",
    "tests/simulation",
    "tests/operate",
    "tests/model",
)

# Many small files, which fill what is left.
LAST = ("tests/functions", "tests/style", "tests/unit")


class HasId(Protocol):
    """A test, as far as its order goes."""

    @property
    def nodeid(self) -> str: ...


Test = TypeVar("Test", bound=HasId)


def group_of(nodeid: str) -> str:
    """The file of a test, or its folder: what one worker runs from beginning to end."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in TOGETHER else file


def in_order(items: Sequence[Test]) -> list[Test]:
    """Long folders first, then those that are not named here, then those of small files."""
    order = {folder: at for at, folder in enumerate((*FIRST, "", *LAST))}

    def place(item: Test) -> int:
        folder = item.nodeid.partition("::")[0].rpartition("/")[0]
        return order.get(folder, order[""])

    return sorted(items, key=place)


class InGroups(LoadFileScheduling):  # type: ignore[misc]
    """Hands out `group_of` by `group_of`, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
