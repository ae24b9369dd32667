"""The bytes read for a key with a rate, by the deployed apps that stream and list."""

from __future__ import annotations

import pytest

from functions.ingest.handler import handle as ingest
from tests.functions.cloud import Cloud, event, give_key
from tests.functions.grant_scenes import wake
from tests.functions.streaming import SSE, read
from tests.functions.test_propose import post
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.quotas import RateLimiter
from tidings.core.catchup.sse import Chunk, Stream


class Clock:
    """The time of the meter: it passes while a stream waits, however slow the machine is."""

    now_ms = 1_763_000_000_000


@pytest.fixture
def clock(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set the clock of every meter, because each request to a function may make its own."""
    clock = Clock()
    now_ms = property(lambda meter: lambda: clock.now_ms, lambda meter, given: None)
    monkeypatch.setattr(RateLimiter, "_clock", now_ms, raising=False)
    return clock


@pytest.fixture
def shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The headers of a key of 50 requests a window, each worth 2 bytes of reading."""
    monkeypatch.setattr(limits, "KEY_WINDOW_MS", 200)
    monkeypatch.setattr(limits, "KEY_READ_SIZE", 2)
    return {**SSE, "authorization": f"Bearer {give_key(*Role, rate=5)}"}


def test_a_stream_waits_and_goes_on(
    shown: dict[str, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a window at least, in the same answer, without asking all the time."""
    chunks: list[Chunk] = []
    original = Stream.next

    def kept(stream: Stream) -> Chunk:
        chunks.append(original(stream))
        clock.now_ms += chunks[-1].wait_ms
        return chunks[-1]

    monkeypatch.setattr(Stream, "next", kept)
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    wake("state", monkeypatch)
    status, _, text = read("/", headers=shown, query="lastEventId=0", until="event: live")
    assert status == 200 and "event: live" in text
    waits = [chunk.wait_ms for chunk in chunks if chunk.wait_ms]
    assert 0 < len(waits) < 20


def test_a_list_is_answered_and_those_behind_it_are_refused(shown: dict[str, str]) -> None:
    """By what was read for it: the second one of a second is within the rate."""
    for number in range(20):
        post(str(number))
    status, _, text = read("/changes", headers=shown)
    assert (status, text.count('"data":')) == (200, 20)
    status, headers, _ = read("/changes", headers=shown)
    assert (status, headers["retry-after"]) == (429, "1")
