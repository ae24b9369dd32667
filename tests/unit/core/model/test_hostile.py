"""Forged cursors: whatever a client makes up is given a meaning, on every transport."""

from __future__ import annotations

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core.model import cursors

FORGED = [
    "f" * 24,
    "0" * 24,
    "F" * 18 + "7fffff",
    "0" * 18 + "800000",
    "0" * 18 + "ffffff",
    f"{NOW // 1000:08x}{2**40 - 1:010x}000000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}800000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}c00040",
    f"{NOW // 1000:08x}{1:010x}7ffffe",
    f"{NOW // 1000:08x}{1:010x}00ffff",
    f"{2**32 - 1:08x}{1:010x}800000",
    f"{2**32 - 1:08x}{0:010x}c0003f",
    "545b55c7f095528dd0f3863c",
    "9" * 13,
    "1",
]


@pytest.mark.parametrize("text", FORGED)
def test_forged_cursors_get_data(scene: Scene, text: str) -> None:
    """For any cursor the stream reaches its frontier, and later operations arrive."""
    scene.projected(op("a"))
    stream = scene.streamer.open(FEED, text)
    for _ in range(200):
        if stream.next().at_frontier:
            break
    else:
        raise AssertionError("never reaches the frontier")

    scene.post(op("new"))
    assert '"id":"new"' in stream.next().text
    assert cursors.parse(stream.progress.cursor)
