"""Lanes: which tests one command runs.

Each test is in one lane, by its needs: a folder of `DEPLOY`, else its markers. A lane asks for
its tools before it collects, so that none is green because everything was skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FAST, TWIN, SPARK, DEPLOYING, WORLD = "fast", "twin", "spark", "deploy", "world"
DATA = "data"
# Servers that tests of the lane `data` start: each is a marker, with the fixtures that start it.
SERVERS: Mapping[str, Collection[str]] = {
    "elasticsearch": ("elasticsearch",),
    "kafka": ("kafka_servers",),
    "mariadb": ("mariadb_url", "compressed_url"),
    "mongodb": ("mongodb_url",),
    "opensearch": ("opensearch",),
    "pgbouncer": (),
    "postgresql": ("postgresql_url",),
    "rabbitmq": ("rabbitmq_url",),
    "redis": ("redis_url",),
}
# Tests of templates, roles and releases: run them after a change of `infra/` and for a release.
DEPLOY = ("tests/iam/", "tests/infra/", "tests/localstack/", "tests/release/")

WORLD_FOLDER = "tests/world/"
FOLDERS = {WORLD: (WORLD_FOLDER,), DEPLOYING: DEPLOY}  # lanes that have folders of their own
_ALL_NEED_JAVA = re.compile(r"^pytestmark = pytest\.mark\.java$", re.M)
# Files of tests without these words, in them or in the other files of their folder, have no test
# of the lane. `is_lost` is asked about each.
_STARTED = "|".join(fixture for fixtures in SERVERS.values() for fixture in fixtures)
_WORDS = {
    TWIN: re.compile(r"\b(java|twin)\b"),
    SPARK: re.compile(r"\b(spark|lake)\b"),
    DATA: re.compile(rf"\b({_STARTED})\b"),
}
# The folders of what Lambda runs: `make test-runtime` runs them on the Python of Lambda.
RUNTIME = ("tests/unit/core/", "tests/unit/http/", "tests/unit/aws/", "tests/functions/")
# Set if `make test-runtime` runs too, as in CI: `make test` then runs one test of each file there.
RUNTIME_APART = "RUNTIME_APART"
STAGE_FOLDER = "tests/aws/"  # in no lane: its tests need a deployed stage (`make sandbox`)
# Third-party programs that the tests of the lane `world` start; each one is a marker, too.
PROGRAMS = (
    *("apache2", "caddy", "curl", "go", "haproxy", "nginx", "npm"),
    *("pipx", "prometheus", "promtool"),
)


@dataclass(frozen=True)
class Lane:
    """Its command, its contents, and the markers of the tools that it requires: everywhere, and in
    CI, because a test that is skipped in CI is never run.
    """

    command: str
    runs: str
    needs: Collection[str] = ()
    needs_in_ci: Collection[str] = ()


LANES: Mapping[str, Lane] = {
    FAST: Lane(
        "make test",
        "tests with Python alone, and fast ones with Node.js or Chromium",
        needs_in_ci=("curl", "node"),
    ),
    WORLD: Lane("make test-world", "proxies, scrapers and clients of others", ("node", *PROGRAMS)),
    DATA: Lane("make test-data", "pipelines with real databases, queues and indices", (*SERVERS,)),
    TWIN: Lane("make test-twin", "tests of the deployed functions", ("java",)),
    SPARK: Lane("make test-spark", "jobs, tables and sources on Spark", ("spark",)),
    DEPLOYING: Lane("make test-deploy", "templates, roles and releases", ("java", "node")),
}


def lane_of(nodeid: str, markers: Collection[str]) -> str:
    """Return the lane of a test, by its folder and its markers."""
    if nodeid.startswith(DEPLOY):
        return DEPLOYING
    if nodeid.startswith(WORLD_FOLDER):
        return WORLD
    if SERVERS.keys() & {*markers}:
        return DATA
    if SPARK in markers:
        return SPARK
    return TWIN if "java" in markers else FAST


def servers_of(fixtures: Collection[str]) -> Set[str]:
    """Return the markers of the servers that *fixtures* start."""
    return {marker for marker, starting in SERVERS.items() if {*starting} & {*fixtures}}


def is_outside(path: str, lane: str) -> bool | None:
    """Return True for a path below `tests` that *lane* need not collect; None if markers decide.

    No lane collects the tests of a deployed stage, the lanes `world` and `deploy` collect their own
    folders, which other lanes do not, the fast lane does not import files if all their tests need
    Java, and the lanes `twin`, `spark` and `data` only files with one of their words.
    """
    if f"{path}/".endswith(f"/{STAGE_FOLDER}"):
        return True
    if lane in FOLDERS:
        below = f"tests/{path.rpartition('/tests/')[2]}/"
        return True if "/tests/" in path and not below.startswith(FOLDERS[lane]) else None
    if f"{path}/".endswith((*DEPLOY, WORLD_FOLDER)):
        return True
    is_test = path.endswith(".py") and "/test_" in path
    return True if is_test and not _may_have(path, lane) else None


@cache
def _may_have(path: str, lane: str) -> bool:
    """Return False if the text of a file shows that it has no test of *lane*."""
    file = Path(path)
    if lane not in _WORDS:
        return not _ALL_NEED_JAVA.search(file.read_text())
    shared = (each for each in file.parent.glob("*.py") if not each.name.startswith("test_"))
    return any(_WORDS[lane].search(each.read_text()) for each in (file, *shared))


def is_lost(path: str, lane: str) -> bool:
    """Return True if a test of *lane* is in a file that *lane* does not collect."""
    return lane in _WORDS and not _may_have(path, lane)


def sample(nodeids: Iterable[str]) -> set[str]:
    """Return the first test of each file of `RUNTIME`, and all tests of other files."""
    first: dict[str, str] = {}
    for nodeid in nodeids:
        first.setdefault(
            nodeid.partition("::")[0] if nodeid.startswith(RUNTIME) else nodeid, nodeid
        )
    return {*first.values()}


def missing(lane: str, has: Callable[[str], bool], *, in_ci: bool = False) -> list[str]:
    """Return the markers of the tools that *lane* requires and this machine lacks."""
    needed = (*LANES[lane].needs, *(LANES[lane].needs_in_ci if in_ci else ()))
    return [marker for marker in needed if not has(marker)]
