"""
Producers that keep to a schedule.

Each sends its requests one after another, and one that is late sends the next at once. How long
an operation took is counted from when it was due: what waited behind a slow answer was late too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx
from tidings.client import auth
from tidings.client.address import operations_url
from tidings.client.errors import Lost
from tidings.client.produce.post import encode
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection
from tidings.client.transport.connection import trusted

from bench.loading.ledger import Ledger
from bench.loading.plan import Place, Plan
from bench.loading.recorder import ACKED, ANSWERED, Recorder

RETRY_S = 0.25  # a producer with a schedule asks again soon
GIVE_UP_S = 120.0  # longer than any restart; then nobody knows whether it was appended

Clock = Callable[[], float]


class Posts(Protocol):
    """Whom a producer gives its operations to."""

    async def post(
        self, lines: Sequence[bytes], key: str, on_lost: Callable[[], None]
    ) -> list[str]: ...


class Sender:
    """Posts operations until there is an answer, so that they are appended once."""

    def __init__(self, place: Place, producers: int) -> None:
        self._url = operations_url(place.url, place.feed)
        self._client = httpx.AsyncClient(
            headers=auth.basic(place.ingest_password),
            timeout=httpx.Timeout(connection.ANSWER_S, connect=connection.CONNECT_S),
            limits=httpx.Limits(max_connections=producers + 1),
            verify=trusted(),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def post(
        self,
        lines: Sequence[bytes],
        key: str,
        on_lost: Callable[[], None] = lambda: None,
        give_up_s: float = GIVE_UP_S,
    ) -> list[str]:
        """
        The ids of *lines*.

        Raises:
            Refused: the feed will not take them.
            Lost: no answer within *give_up_s*.
        """
        until = time.monotonic() + give_up_s
        while True:
            try:
                return await self._once(lines, key)
            except Lost as lost:
                if time.monotonic() > until:
                    raise
                on_lost()
                await asyncio.sleep(max(RETRY_S, lost.after_s))

    async def _once(self, lines: Sequence[bytes], key: str) -> list[str]:
        headers = {
            "content-type": "application/x-ndjson",
            "idempotency-key": key,
            "prefer": "return=representation",
        }
        with connection.translated(self._url):
            answer = await self._client.post(self._url, content=b"\n".join(lines), headers=headers)
        if answer.status_code != 200:
            raise error_of_answer(answer)
        found: list[str] = answer.json()["ids"]
        return found


class Producer:
    """One of those that share the schedule; *clock* is the monotonic one."""

    def __init__(
        self, plan: Plan, number: int, sender: Posts, clock: Clock = time.monotonic
    ) -> None:
        self._plan, self._number, self._sender, self._clock = plan, number, sender, clock

    async def run(self, began_s: float, ledger: Ledger, recorder: Recorder) -> None:
        """Send what is due; *began_s* is when the schedule began."""
        for serials in self._plan.shares(self._number):
            due_s = began_s + self._plan.due_s(serials[0])
            await asyncio.sleep(max(0.0, due_s - self._clock()))
            await self._request(serials, due_s, ledger, recorder)

    async def _request(
        self, serials: range, due_s: float, ledger: Ledger, recorder: Recorder
    ) -> None:
        lines = [encode(self._plan.operation(serial)) for serial in serials]
        sent_s = self._clock()
        recorder.count("sent", len(serials))
        key = f"load-{self._plan.run}-{serials[0]}"
        try:
            ids = await self._sender.post(lines, key, lambda: recorder.count("retries"))
        except Lost:
            recorder.count("unanswered", len(serials))
            return
        now_s = self._clock()
        recorder.count("acknowledged", len(serials))
        recorder.took(ACKED, now_s - due_s)
        recorder.took(ANSWERED, now_s - sent_s)
        ledger.acknowledges(serials, ids)
