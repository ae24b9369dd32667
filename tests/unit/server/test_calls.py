"""The number of our Python calls per post: the same on every machine, unlike the time of a post.

Calls of the event loop are counted, from the bytes of the request to those of the answer. A limit
is a few calls above the number that was measured, so that a change that adds ten calls is noticed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tidings
from tests.unit.server.test_posts import Client, Scene, learned, play
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.server import loop_guard, writer
from tidings.server.host import now_ms

PLAIN_MAX, PLAIN_OF_16_MAX = 105, 34
KEYED_MAX, KEYED_OF_16_MAX = 115, 44
ROUNDS = 9  # the first ones fill caches, and a timer of the server may fire during any of them
BODY = b'{"event":"update","type":"video","id":"x%d","parents":["user/u1"]}'
PROXY = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Real-IP: 192.0.2.1")
_OURS = str(Path(tidings.__file__).parent)


class Calls:
    """A profile function that counts calls of our functions, except those of tests."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(_OURS) and file != loop_guard.__file__:
            self.count += 1


async def calls_per_post(clients: list[Client], post: Callable[[Client], Any]) -> float:
    """Return the smallest number of calls per post of some rounds, in which each client posts."""
    found = []
    for _ in range(ROUNDS):
        calls = Calls()
        sys.setprofile(calls)
        try:
            answers = await asyncio.gather(*map(post, clients))
        finally:
            sys.setprofile(None)
        assert {each.status for each in answers} == {204}
        found.append(calls.count / len(clients))
    return min(found)


@pytest.fixture(autouse=True)
def _commits_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit in the event loop on a slow disk, too: the calls of another thread are not counted."""
    monkeypatch.setattr(writer, "SLOW_S", float("inf"))


@pytest.mark.parametrize(("clients", "most"), [(1, PLAIN_MAX), (16, PLAIN_OF_16_MAX)])
def test_a_post_without_a_key_makes_few_calls(tmp_path: Path, clients: int, most: int) -> None:
    async def scene(scene: Scene) -> None:
        numbers = count()
        connected = [await learned(scene) for _ in range(clients)]
        assert await calls_per_post(connected, lambda each: each.post(BODY % next(numbers))) <= most

    play(tmp_path, scene)


@pytest.mark.parametrize(("clients", "most"), [(1, KEYED_MAX), (16, KEYED_OF_16_MAX)])
def test_a_post_with_a_key_makes_few_calls(tmp_path: Path, clients: int, most: int) -> None:
    """It also has an Idempotency-Key, and the fields of a proxy."""

    async def scene(scene: Scene) -> None:
        host, numbers = scene.host, count()
        issuer = KeyIssuer(host.stores.keys, host.profiles, now_ms, host.key_ring.forget)
        given = PresentedKey("a" * ID_LENGTH, "s" * 32)
        wanted = Key("", "", frozenset({Role.INGEST}))
        await asyncio.to_thread(issuer.create, "main", given, wanted)
        fields = (f"Authorization: Bearer {given.encode()}", *PROXY)
        connected = [await learned(scene, *fields) for _ in range(clients)]

        def post(client: Client) -> Any:
            number = next(numbers)
            return client.post(BODY % number, *fields, f"Idempotency-Key: {number}")

        assert await calls_per_post(connected, post) <= most

    play(tmp_path, scene)
