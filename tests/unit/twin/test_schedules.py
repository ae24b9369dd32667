"""Schedules invoke their functions as EventBridge Scheduler does."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.twin import workers
from tests.twin.lambda_api import Answer, failure
from tidings.aws.config.deployment import Schedule


def test_a_schedule_invokes_after_each_interval_whatever_the_answer() -> None:
    """The first run comes after one interval; a failed run does not end the schedule."""
    pauses: list[float] = []
    calls: list[tuple[str, dict[str, object]]] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            raise asyncio.CancelledError

    async def invoke(name: str, payload: bytes) -> Answer:
        assert len(pauses) == len(calls) + 1
        calls.append((name, json.loads(payload)))
        return failure("X", "y")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(workers.run_schedule(Schedule("sweep", every_minutes=1), invoke, pause=pause))

    assert pauses == [60, 60, 60]
    assert [name for name, _ in calls] == ["sweep", "sweep"]
    assert calls[0][1]["source"] == "aws.scheduler"
    assert calls[0][1]["detail-type"] == "Scheduled Event"
    assert calls[0][1]["id"] != calls[1][1]["id"]
