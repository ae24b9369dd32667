"""Functions keep their promises whatever AWS answers; `tests/contract/faults.py` has answers."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from functions.consume.handler import handle as consume
from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.sweep.handler import handle as sweep
from tests.contract.faults import Faults
from tests.functions.cloud import Cloud, answered, archive_on_s3, become, event
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.archive.segments import decode
from tidings.core.errors import Unavailable

POSTS, OBJECTS, SHARE = 24, 5, 0.15
TRIES_MAX = 40  # of a producer; with this share, botocore's attempts fail less often than one in 4


@pytest.fixture
def unreliable(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Faults]]:
    """Let AWS fail from a call with a seed on. Pauses take no time."""
    archive_on_s3(monkeypatch)
    faults = cloud.faults

    def begin(seed: int) -> Faults:
        faults.random, faults.share = random.Random(seed), SHARE
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        return faults

    yield begin
    faults.share = 0


def until_answered(ask: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    """Repeat a request while the answer is 503, as PROTOCOL 4.6 requires of clients."""
    for _ in range(TRIES_MAX):
        status, body = ask()
        if status != 503:
            return status, body
    raise AssertionError("every attempt was answered with 503")


def post(number: int) -> None:
    body = json.dumps({"event": "update", "type": "v", "id": str(number % OBJECTS),
                       "data": {"n": number}})  # fmt: skip
    sent = event("http_post", body=body, more={"idempotency-key": f"post-{number}"})

    def ask() -> tuple[int, Any]:
        answer = ingest(sent, None)
        return answer["statusCode"], answer.get("body")

    assert until_answered(ask)[0] == 204


def run(follower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a follower until it has nothing to report, as a stream of Lambda does."""
    become(follower, monkeypatch)
    for _ in range(TRIES_MAX):
        if follow(event("stream_insert"), None) == {"batchItemFailures": []}:
            return
    raise AssertionError(f"{follower} fails again and again")


@pytest.mark.parametrize("seed", range(3))
def test_an_acknowledged_post_is_in_log_state_and_archive_once(
    seed: int, unreliable: Callable[[int], Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only 204 and 503 are answered; nothing is lost, doubled or out of order."""
    faults = unreliable(seed)
    for number in range(POSTS):
        post(number)
        if number % 6 == 5:
            for follower in ("state", "archive"):
                run(follower, monkeypatch)
            try:
                sweep(event("schedule"), None)
            except* Unavailable:
                """The next minute's run continues."""
    faults.share = 0
    for follower in ("state", "archive"):
        run(follower, monkeypatch)

    assert sum(faults.played.values()) > POSTS
    pages = stage().stores.log.read("main", 0)
    told = [json.loads(line)["data"]["n"] for page in pages for line in page.lines]
    assert told == list(range(POSTS))
    rows = [
        json.loads(row.line)["data"]["n"]
        for bucket in range(limits.BUCKETS)
        for row in stage().stores.state.read("main", bucket)
    ]
    assert sorted(rows) == list(range(POSTS - OBJECTS, POSTS))
    archive = stage().stores.archive
    assert archive is not None
    kept = {page.number: page.lines for span in archive.list("main", 0, 1000)
            for page in decode(archive.get("main", span) or b"")}  # fmt: skip
    assert kept == {page.number: page.lines for page in pages}


@pytest.mark.parametrize("seed", range(3))
def test_a_consumer_acknowledges_once(seed: int, unreliable: Callable[[int], Faults]) -> None:
    """A lease, acknowledgements and their position survive answers that were lost."""
    for number in range(4):
        post(number)
    unreliable(seed)

    def ask(method: str, route: str, body: object = None, **more: Any) -> tuple[int, Any]:
        more = {"name": "index", **more}
        return until_answered(lambda: answered(consume, f"{method} {route}", body, **more))

    named = "/feeds/{feed}/consumers/{name}"
    assert ask("PUT", named)[0] in (200, 201)
    fence = ask("POST", f"{named}/{{action}}", {"worker": "w"}, action="lease")[1]["fence"]
    page = stage().stores.log.read("main", 0)[1]
    done = {"fence": fence, "ids": [f"{page.id_prefix}{0:06x}"]}
    assert ask("POST", f"{named}/{{action}}", done, action="ack")[0] == 200
    status, told = ask("GET", named)
    assert (status, told["name"]) == (200, "index")
