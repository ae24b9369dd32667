"""Producers that follow a schedule, and consumers that check the events they receive.

A producer sends its requests one after another, and sends a late one at once. Latency counts from
when an operation was due, so that an operation that waited for a slow answer counts as late. Some
consumers leave, and resume from their cursors.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import httpx

from tidings.client.address import Subscription, operations_url
from tidings.client.errors import Lost
from tidings.client.events import LIVE, RESET, Event, Moved
from tidings.client.feed_api import ANSWER_S, CONNECT_S, basic, ssl_context, translate_errors
from tidings.client.poster import encode
from tidings.client.reconnect import ListenAsync, listeners, resume_async
from tidings.client.retries import error_of_answer

from .ledger import Ledger, Place, Plan, Reader
from .recorder import ACKED, ANSWERED, HEARD, Recorder

RETRY_S = 0.25  # a producer with a schedule retries soon
GIVE_UP_S = 120.0  # longer than any restart; after that it is unknown whether it was appended

AWAY_S = (0.5, 8.0)  # how long a consumer stays away
BEGIN = "begin"  # the id of an object; receiving it shows that a consumer listens
_LOOK_S = 0.05

Clock = Callable[[], float]


class Posts(Protocol):
    """Accepts the operations of a producer."""

    async def post(
        self, lines: Sequence[bytes], key: str, on_lost: Callable[[], None]
    ) -> list[str]: ...


class Sender:
    """Posts operations until they are answered, so that each is appended once."""

    def __init__(self, place: Place, producers: int) -> None:
        self._url = operations_url(place.url, place.feed)
        self._client = httpx.AsyncClient(
            headers=basic(place.ingest_password),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=producers + 1),
            verify=ssl_context(),
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
        """Post *lines* and return their ids.

        Raises:
            Refused: the feed refuses them.
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
        with translate_errors(self._url):
            answer = await self._client.post(self._url, content=b"\n".join(lines), headers=headers)
        if answer.status_code != 200:
            raise error_of_answer(answer)
        found: list[str] = answer.json()["ids"]
        return found


class Producer:
    """Sends its share of the schedule; *clock* is monotonic."""

    def __init__(
        self, plan: Plan, number: int, sender: Posts, clock: Clock = time.monotonic
    ) -> None:
        self._plan, self._number, self._sender, self._clock = plan, number, sender, clock

    async def run(self, began_s: float, ledger: Ledger, recorder: Recorder) -> None:
        """Send each request when it is due; the schedule began at *began_s*."""
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


class Consumer:
    """A reader of the feed over one transport, from the end of the ledger on."""

    def __init__(self, name: str, transport: str, listen: ListenAsync, ledger: Ledger) -> None:
        self.name, self.transport = name, transport
        self.cursor = ledger.last_id
        self.reader: Reader = ledger.joins(name)
        self.began = asyncio.Event()
        self._listen, self._ledger = listen, ledger
        self._came_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def comes(self, plan: Plan, began_s: Callable[[], float], recorder: Recorder) -> None:
        """Listen from its cursor; operations that became due while it was away are not late."""
        self._came_s = time.monotonic() if self.began.is_set() else 0.0
        self._task = asyncio.create_task(self._follow(plan, began_s, recorder))

    async def leaves(self) -> None:
        """Stop listening.

        Raises:
            Refused: the feed did not let it listen.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self.check()

    def check(self) -> None:
        """Raise the error that ended it, if any.

        Raises:
            Refused: the feed did not let it listen.
        """
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _follow(self, plan: Plan, began_s: Callable[[], float], recorder: Recorder) -> None:
        def lost(_: Lost, __: float) -> None:
            recorder.count("connections lost")

        async with aclosing(resume_async(self._listen, self.cursor, on_lost=lost)) as items:
            async for item in items:
                if isinstance(item, Moved):
                    self.cursor = item.cursor
                elif item.data.get("id") == BEGIN:
                    self.cursor = item.id
                    self.began.set()
                else:
                    self._on_event(item, plan, began_s, recorder)

    def _on_event(
        self, event: Event, plan: Plan, began_s: Callable[[], float], recorder: Recorder
    ) -> None:
        serial = self._ledger.hears(self.reader, event)
        self.cursor = event.id or self.cursor
        recorder.count("heard")
        if serial is None:
            return
        due_s = began_s() + plan.due_s(serial)
        if due_s < self._came_s:
            recorder.count("caught up")
        else:
            recorder.took(HEARD[self.transport], time.monotonic() - due_s)


class StreamCounter:
    """All consumers of a run. The schedule started at `began_s` on the monotonic clock."""

    def __init__(self, plan: Plan, place: Place, ledger: Ledger, recorder: Recorder) -> None:
        self.began_s = 0.0
        self._plan, self._place, self._ledger, self._recorder = plan, place, ledger, recorder
        self._chance = random.Random(plan.seed)
        self._made = 0
        self._here = [self._make() for _ in range(plan.consumers)]

    @property
    def away(self) -> int:
        """Return the number of consumers that left and are not back yet."""
        return self._plan.consumers - len(self._here)

    def comes(self) -> None:
        for each in self._here:
            self._start(each)

    async def listens(self, within_s: float) -> None:
        """Wait until all have received the first operation.

        Raises:
            Refused: the feed did not let one listen.
            TimeoutError: one has not received it in time.
        """
        async with asyncio.timeout(within_s):
            while not all(each.began.is_set() for each in self._here):
                self.check()
                await asyncio.sleep(_LOOK_S)

    async def churns(self, until_s: float) -> None:
        """Let consumers leave until *until_s*; half come back, new ones replace the others."""
        async with asyncio.TaskGroup() as leaving:
            while self._plan.churn:
                wait_s = self._chance.expovariate(self._plan.churn / 60)
                if time.monotonic() + wait_s > until_s:
                    return
                await asyncio.sleep(wait_s)
                if self._here:
                    leaving.create_task(self._goes(self._taken()))

    def check(self) -> None:
        """Raise the error that ended a consumer, if any.

        Raises:
            Refused: the feed no longer lets one listen.
        """
        for each in self._here:
            each.check()

    async def ends(self) -> None:
        await asyncio.gather(*(each.leaves() for each in self._here))

    async def _goes(self, consumer: Consumer) -> None:
        self._recorder.count("left")
        await consumer.leaves()
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.uniform(*AWAY_S))
        else:
            self._ledger.leaves(consumer.reader)
            consumer = self._make()
            consumer.began.set()
        self._here.append(consumer)
        self._start(consumer)

    def _taken(self) -> Consumer:
        return self._here.pop(self._chance.randrange(len(self._here)))

    def _make(self) -> Consumer:
        transport = self._plan.transports[self._made % len(self._plan.transports)]
        self._made += 1
        listen = _listen(self._place, self._plan, transport)
        return Consumer(f"{transport} {self._made}", transport, listen, self._ledger)

    def _start(self, consumer: Consumer) -> None:
        consumer.comes(self._plan, lambda: self.began_s, self._recorder)


def _listen(place: Place, plan: Plan, transport: str) -> ListenAsync:
    wanted = Subscription(place.feed, (plan.type,), password=place.read_password)
    if transport == "sse":
        _, listen = listeners("sse", place.stream_url or place.url, None, wanted)
    else:
        _, listen = listeners("ws", place.url, place.ws_url, wanted)
    return listen


async def state(place: Place, plan: Plan) -> dict[str, int]:
    """Copy the objects of this run; return the serial of the latest operation of each.

    Raises:
        Refused: the feed refuses to answer.
    """
    listen = _listen(place, plan, "sse")
    found: dict[str, int] = {}
    async with aclosing(resume_async(listen, "0", on_lost=lambda lost, delay_s: None)) as items:
        async for item in items:
            if isinstance(item, Moved):
                continue
            if item.name == LIVE:
                return found
            if item.name == RESET:
                found.clear()
            else:
                _apply(found, item)
    raise AssertionError("a copy ends with `live`")


def _apply(found: dict[str, int], event: Event) -> None:
    key = str(event.data["id"])
    if event.name == "delete":
        found.pop(key, None)
    elif key != BEGIN:
        found[key] = int(event.data["data"]["serial"])
