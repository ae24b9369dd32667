"""A repository's history over lines that break, and producers that retry at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.listeners import ReceivedEvent
from tests.e2e import consumers, histories
from tests.e2e.consumers import BEFORE_THE_FIRST, Consumer
from tests.e2e.cutting import cutting
from tidings.client.demo import history
from tidings.client.poster import Poster
from tidings.server.running import Server

SEED = 20261121
COMMITS_MIN = 20  # a shorter history of our own shows too little
COMMITS_MAX = 80  # ours grows for ever, this test does not
CUTS_MIN = 5
SOCKET_LIFE_MAX_S = 3.0  # some connections come as far as being live, some do not
END = {"event": "insert", "type": "end", "id": "end"}
OURS = Path(__file__).parents[2]


@pytest.fixture(params=["ours", "made up"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the end of this project's own history if it exists, and a made-up repository."""
    if request.param == "made up":
        return histories.create(tmp_path, SEED)
    if histories.commit_count(OURS) < COMMITS_MIN:
        pytest.skip(f"this clone has fewer than {COMMITS_MIN} commits")
    return histories.latest(OURS, tmp_path, COMMITS_MAX)


def test_a_history_arrives_whole_over_lines_that_break(repository: Path, tmp_path: Path) -> None:
    """Producer and consumers are cut again and again while a history is posted: every consumer
    and the state end with exactly the files of the head.
    """
    expected = histories.files(repository)
    with (
        Server(data=tmp_path / "data") as host,
        cutting(host.port, SEED, life_max_s=0.1) as producing,
        cutting(host.port, SEED + 1, life_max_s=1.0) as streaming,
        cutting(host.port, SEED + 2, life_max_s=SOCKET_LIFE_MAX_S) as pushing,
    ):
        by_client = Consumer(
            consumers.client(pushing.url, BEFORE_THE_FIRST, ws_url=pushing.ws_url), _is_end
        )
        by_sse = Consumer(consumers.raw_sse(streaming.url, BEFORE_THE_FIRST), _is_end)
        ids = _post(producing.url, repository)
        for cutter in (streaming, pushing):
            cutter.calm(after=CUTS_MIN)
        ids += _post_end(host.url)

        heard = by_client.done(), consumers.without_repeats(by_sse.done())
        copied = consumers.replicate(host.url)

    for events in heard:
        assert [event.id for event in events] == ids
        assert _files(consumers.fold(events)) == expected
    assert _files(copied) == expected
    assert producing.cuts > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_made_up_history_is_told_as_git_tells_it(seed: int, tmp_path: Path) -> None:
    """Whatever a history does to files, the fold of its operations is the tree of its head."""
    repo = histories.create(tmp_path, seed)
    files: dict[str, str] = {}
    for _, operations in history(repo):
        for operation in operations:
            if operation["event"] == "delete":
                del files[operation["id"]]
            else:
                files[operation["id"]] = operation["data"]["blob"]

    assert histories.commit_count(repo) == histories.COMMITS
    assert files == histories.files(repo)
    assert any("\n" in name for name in files)


def _post(url: str, repository: Path) -> list[str]:
    """Post the whole history, each commit as a request of its own, and return the ids."""
    ids: list[str] = []
    with Poster(url, attempts_max=1_000, wait=lambda _: None) as poster:
        for commit, operations in history(repository):
            for at in range(0, len(operations), 200):
                batch = operations[at : at + 200]
                ids += poster.post(batch, key=f"{commit.hash}-{at}")
    return ids


def _post_end(url: str) -> list[str]:
    with Poster(url) as poster:
        return poster.post([END])


def _is_end(heard: ReceivedEvent) -> bool:
    return heard.data.get("type") == "end"


def _files(objects: dict[tuple[str, str], Any]) -> dict[str, str]:
    return {path: data["data"]["blob"] for (kind, path), data in objects.items() if kind == "file"}


LAST = {"event": "insert", "type": "video", "id": "end", "parents": ["user/ann"]}
AT_ONCE = 8
ROUNDS = 6


@pytest.fixture
def host() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_a_request_retried_at_the_same_time_is_appended_once(host: Server) -> None:
    """Eight senders of one Idempotency-Key at the same moment get the same ids of one page."""
    answers = []
    for number in range(ROUNDS):
        batch = [{"event": "insert", "type": "thing", "id": f"{number}-{at}"} for at in range(3)]
        answers.append(_all_at_once(host.url, f"key {number}", batch))
    httpx.post(host.url, json=LAST, timeout=30).raise_for_status()
    log = consumers.log_from(host.url, BEFORE_THE_FIRST, _is_last)

    for ids_of_each in answers:
        assert len({tuple(ids) for ids in ids_of_each}) == 1, ids_of_each
    assert [heard.id for heard in log[:-1]] == [event_id for ids in answers for event_id in ids[0]]
    assert [heard.data["id"] for heard in log[:-1]] == [
        f"{number}-{at}" for number in range(ROUNDS) for at in range(3)
    ]


def _all_at_once(url: str, key: str, batch: list[dict[str, Any]]) -> list[list[str]]:
    start = threading.Barrier(AT_ONCE)
    headers = {"Idempotency-Key": key, "Prefer": "return=representation"}

    def send(_: int) -> list[str]:
        with httpx.Client(timeout=30) as client:
            start.wait()
            answer = client.post(url, json=batch, headers=headers)
        assert answer.status_code == 200, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(send, range(AT_ONCE)))


def _is_last(heard: ReceivedEvent) -> bool:
    return heard.data.get("id") == "end"
