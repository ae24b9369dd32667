"""The upgrade drill on the twin: tables that the release before this one has written go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tidings.local.running import Twin
from tidings.local.store import dynamodb_local

from tests.deploy import stored

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def old() -> dict[str, Any]:
    return stored.load()


@pytest.fixture(scope="module")
def twin(old: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A twin of today's on those tables."""
    log = tmp_path_factory.mktemp("engine") / "log"
    log.touch()
    with asyncio.Runner() as runner:
        running = runner.run(dynamodb_local.start(port=0, data=None, log=log))
        try:
            stored.restore(running.url, old["tables"])
            with stored.continued(running.url) as twin:
                yield twin
        finally:
            runner.run(running.stop())


def test_the_log_is_told_as_it_was(twin: Twin, old: dict[str, Any]) -> None:
    """A cursor of then is followed by the same ids, events and bytes."""
    first, last = old["ids"][0], old["ids"][-1]

    assert [tuple(each) for each in old["log"]] == stored.told(twin.url, first, last)


def test_the_state_is_what_it_was(twin: Twin, old: dict[str, Any]) -> None:
    """A new consumer gets the objects of then, and those alone."""
    then = {data for _, event, data in old["copy"] if event not in ("reset", "live")}
    now = {
        data
        for _, event, data in stored.told(twin.url, "0", "live")
        if event not in ("reset", "live") and '"type":"probe"' not in data
    }

    assert then
    assert then == now


def test_what_is_new_comes_behind_what_was_there(twin: Twin, old: dict[str, Any]) -> None:
    """Numbers go on; a cursor of then is told the old operations and then the new one."""
    (new,) = stored.post(twin.url, {"event": "insert", "type": "probe", "id": "p"})
    heard = [event_id for event_id, _, _ in stored.told(twin.url, old["ids"][0], new)]

    assert heard[:4] == old["ids"][1:]
    assert heard == sorted(heard)
    assert heard[-1] == new


def test_passwords_hold_and_nobody_else_is_let_in(twin: Twin) -> None:
    """Hashes of then are read; a role has no use for the password of the other one."""
    operation = {"event": "insert", "type": "probe", "id": "p"}
    answers = {
        password: httpx.post(f"{twin.url}ops", json=operation, auth=("", password)).status_code
        for password in (stored.PRODUCER, stored.READER, "another")
    }

    assert answers == {stored.PRODUCER: 204, stored.READER: 401, "another": 401}
    assert httpx.post(f"{twin.url}ops", json=operation).status_code == 401


def test_a_named_consumer_is_where_it_was(twin: Twin, old: dict[str, Any]) -> None:
    """Its position and its fence go on: nothing it acknowledged comes again, nothing is skipped."""
    with stored.client(twin.url, stored.READER) as asking:
        shown = asking.get(stored.CONSUMER).raise_for_status().json()
        leased = asking.post(
            f"{stored.CONSUMER}/lease", json=stored.WORKER, auth=("", stored.PRODUCER)
        ).raise_for_status()

    behind = leased.json()["cursor"]
    assert shown["position"] == behind
    assert old["ids"][1] <= behind < old["ids"][2]
    assert leased.json()["fence"] > 1
