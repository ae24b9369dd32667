"""EventBridge Scheduler: invokes functions every few minutes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from tidings.aws.config.deployment import Schedule
from tidings.twin import clock
from tidings.twin.lambdas.lambda_api import Invoke
from tidings.twin.options import ACCOUNT, PREFIX, REGION

Pause = Callable[[float], Awaitable[None]]


async def run(schedule: Schedule, invoke: Invoke, *, pause: Pause = asyncio.sleep) -> None:
    """
    Invoke the function of *schedule* until cancelled, first after one interval.

    A failed run is not retried: the next one follows soon enough.
    """
    while True:
        await pause(schedule.every_minutes * 60)
        await invoke(schedule.function, json.dumps(event(schedule, clock.now_ms())).encode())


def event(schedule: Schedule, now_ms: int) -> dict[str, object]:
    """Return the event that Scheduler sends to a function if its target has no input."""
    return {
        "version": "0",
        "id": clock.new_uuid(),
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": ACCOUNT,
        "time": clock.moment(now_ms).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [
            f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{PREFIX}{schedule.function}"
        ],
        "detail": "{}",
    }
