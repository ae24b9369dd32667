"""A stage amid an update keeps the promises that both releases made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tidings.local.running import Twin

from tests.conformance.catalogue import Case, cases
from tests.conformance.runner import hold
from tests.conformance.target import Target
from tests.deploy import suite, two_versions

pytestmark = pytest.mark.java

SLOW = ("7.3", "8.6")  # some 20 s each: a comment is waited for, a client that reads nothing is cut
CALLS = 20  # of one function: by chance the same release takes all of them once in 500,000 times


def _chosen() -> list[Case]:
    """
    Of those that post and listen the first of each rule and transport: several functions serve
    each. `python -m tests.deploy.two_versions` plays all.
    """
    left_out = suite.left_out(cases(), suite.load())
    first: dict[tuple[str, str], Case] = {}
    for case in cases():
        if case.transport and case.id not in left_out and case.rule not in SLOW:
            first.setdefault((case.rule, case.transport), case)
    return list(first.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("update")


@pytest.fixture(scope="module")
def twin(folder: Path) -> Iterator[Twin]:
    with two_versions.running(folder) as running:
        yield running


@pytest.mark.parametrize("case", _chosen(), ids=lambda case: case.id)
def test_both_releases_keep_the_law(case: Case, twin: Twin) -> None:
    """Whichever takes which call: what one writes, wakes or begins, the other reads and ends."""
    url = twin.url.rstrip("/")
    hold(Target(url, twin.ws_url, url, "main", alone=False), case)


def test_both_releases_take_calls(twin: Twin, folder: Path) -> None:
    """Of what every change goes through; without it the tests above would show nothing."""
    for number in range(CALLS):
        operation = {"event": "insert", "type": "probe", "id": str(number)}
        httpx.post(f"{twin.url}ops", json=operation).raise_for_status()

    twin.stop()

    taken = two_versions.calls(folder)
    assert all(min(taken[name]) > 0 for name in ("ingest", "follow-state", "follow-push")), taken
