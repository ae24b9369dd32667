"""A worker of a named consumer: it takes the lease, dies, lingers, hands over, acknowledges.

It is written from section 14 of the protocol; that of `tidings.client` has tests of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.simulation.consumer import LIVE, sse_blocks
from tests.simulation.functions import FEED
from tests.simulation.ledger import Ledger, at_of
from tests.simulation.model import Broken
from tests.simulation.model import Place as Id
from tests.simulation.process import Process
from tests.simulation.world import STREAM_TIMEOUT_S, World
from tidings.core import limits
from tidings.core.consumers.service import Acknowledgement, Session
from tidings.core.errors import (
    ConsumerFellOff,
    ConsumerHeld,
    FenceLost,
    InvalidConsumer,
    TidingsError,
    Unavailable,
    UnknownConsumer,
    UnknownParked,
)
from tidings.core.model.cursors import Place, parse

_POISONOUS = 23  # the store always refuses one message of this many
_ANSWER_MS = 11_000  # above the function's time limit
_HELD_MS, _FELL_MS = 3_000, 5_000
_BATCH = 6
_SILENCE_MS = 30_000  # 7.3: then the stream is dead


class Event(NamedTuple):
    id: str
    name: str
    data: dict[str, Any]


class Source:
    """A stream that is opened again after the last event that was taken."""

    def __init__(self, world: World, session: Session) -> None:
        self._world, self._consumer = world, session.consumer
        self.cursor = session.cursor
        self._heard: list[Event] = []
        self._serving: Process | None = None
        self._spoke_ms = 0

    def take(self) -> Event | None:
        """Return the next event, or None if no event has arrived."""
        if self._heard:
            found = self._heard.pop(0)
            self.cursor = found.id
            return found
        task = self._serving.task if self._serving else None
        now = self._world.scheduler.now_ms
        if task is None or task.done or now - self._spoke_ms > _SILENCE_MS:
            self._spoke_ms = now
            self._serving = self._world.machine.start("stream", STREAM_TIMEOUT_S, self._serve)
        return None

    def put_back(self, event: Event, cursor: str) -> None:
        """*event* was not begun; *cursor* is that of the one before."""
        self._heard.insert(0, event)
        self.cursor = cursor

    def close(self) -> None:
        if self._serving and self._serving.task:
            self._world.scheduler.kill(self._serving.task)

    def _serve(self, process: Process) -> None:
        streamer = self._world.functions.services(process).streamer
        query = {name: ",".join(values) for name, values in self._consumer.filter.values().items()}
        stream = streamer.open(FEED, self.cursor, query)
        while True:
            chunk = stream.next()
            if self._serving is not process:
                return
            self._spoke_ms = process.machine.scheduler.now_ms
            self._heard += [Event(*block) for block in sse_blocks(chunk.text)]
            if chunk.at_frontier:
                process.sleep(500)


class Worker:
    """A worker of *consumer*; *ledger* records the answers of its store and of the feed."""

    def __init__(self, world: World, consumer: str, name: str, ledger: Ledger) -> None:
        self.world, self.consumer, self.name, self.ledger = world, consumer, name, ledger
        self.random, self.strikes, self.saw = world.random, world.faults.strikes, world.faults.saw
        self.sleep = world.scheduler.sleep
        world.scheduler.spawn(name, self._live)

    def _live(self) -> None:
        while True:
            self.world.sleep_through_lull()
            self.sleep(self.random.uniform(10, 3_000))
            try:
                self._work()
            except FenceLost:
                self.saw("worker was overtaken")

    def _work(self) -> None:
        """Work for one lease, to its end."""
        try:
            session = self._ask(
                lambda process: self.world.functions.services(process).consumers.lease(
                    FEED, self.consumer, self.name
                )
            )
        except (ConsumerHeld, ConsumerFellOff, UnknownConsumer) as refused:
            fell = isinstance(refused, ConsumerFellOff)
            self.saw("consumer fell off", fell)
            self.sleep(_FELL_MS if fell else _HELD_MS)
            return
        self.ledger.leased(session)
        try:
            _Turn(self, session).run()
        except (ConsumerFellOff, InvalidConsumer):  # its last write is not in the log any more
            self.saw("consumer fell off")

    def say(self, fence: int, said: Acknowledgement) -> Session:
        """Raises:
        FenceLost, ConsumerFellOff: nothing of it counts.
        """
        self.ledger.says(fence, said)
        session: Session = self._ask(
            lambda process: self.world.functions.services(process).consumers.acknowledge(
                FEED, self.consumer, fence, said
            ),
            fence,
        )
        return session

    def fail(self, fence: int, id: str) -> Session:
        session: Session = self._ask(
            lambda process: self.world.functions.services(process).consumers.fail(
                FEED, self.consumer, fence, id, "it broke"
            ),
            fence,
        )
        return session

    def release(self, fence: int) -> None:
        self._ask(
            lambda process: self.world.functions.services(process).consumers.release(
                FEED, self.consumer, fence
            ),
            fence,
        )

    def holds(self, fence: int) -> bool:
        standing = self.world.stores.consumers.consumer(FEED, self.consumer)
        return standing is not None and standing.fence == fence

    def _ask(self, act: Callable[[Process], Any], fence: int | None = None) -> Any:
        """The answer, asked for until there is one.

        Raises:
            Broken: one that was overtaken before it asked was not refused.
        """
        while True:
            answers: list[Any] = []
            overtaken = fence is not None and not self.holds(fence)
            self.world.consume(partial(_answer, act, answers))
            answered = self.world.wait_for(answers.__len__, _ANSWER_MS, 20)
            if not answered or self.strikes("answer_to_worker_lost"):
                continue
            if isinstance(answers[0], TidingsError):
                raise answers[0]
            if overtaken:
                raise Broken(f"{self.name} was overtaken, but its call with {fence} counts")
            return answers[0]


def _answer(act: Callable[[Process], Any], answers: list[Any], process: Process) -> None:
    try:
        answers.append(act(process))
    except Unavailable:
        raise
    except TidingsError as error:
        answers.append(error)


class _Turn:
    """From a lease to its end."""

    def __init__(self, worker: Worker, session: Session) -> None:
        self.worker, self.session, self.ledger = worker, session, worker.ledger
        self.fence = session.consumer.fence
        self.acked = session.consumer.acked
        self.single = session.consumer.single
        self.source = Source(worker.world, session)
        self.copying = session.consumer.copying
        self.told = self.written = session.cursor

    def run(self) -> None:
        try:
            while self._goes_on():
                batch = self._batch()
                if batch and not self._hand_over(batch):
                    return
            if not self.worker.world.in_lull:
                self._tell()
                self.worker.release(self.fence)
        finally:
            self.source.close()

    def _goes_on(self) -> bool:
        """Return True to read more; messages to be sent again come first, when a lease begins."""
        standing = self.session.consumer
        if self.worker.world.in_lull or standing.paused:
            return False
        if standing.retries:
            self._send_again(standing.retries[0])
            return self._goes_on()
        return not self.worker.strikes("hand_over")

    def _send_again(self, id: str) -> None:
        kept = {
            each.id: each for each in self.worker.world.stores.consumers.parked(FEED, self.name)
        }
        if id in kept and self.worker.random.random() < 0.5:
            data = json.loads(kept[id].line)
            event = data.pop("event")
            self.ledger.writes_again(id, event, data)
            try:
                self._say(Acknowledgement(retried=(id,)))
            except UnknownParked:  # its answer was lost, or an operator dropped it
                self._say(Acknowledgement())
        else:
            self.session = self.worker.fail(self.fence, id)

    @property
    def name(self) -> str:
        return self.worker.consumer

    def _batch(self) -> list[Event]:
        """Return the available messages, up to a few, that may be written together."""
        found: list[Event] = []
        most = self.worker.random.randint(1, _BATCH)
        while len(found) < most:
            cursor, event = self.source.cursor, self.source.take()
            if event is None:
                break
            if self._is_unasked(event):
                self.worker.saw("copy was told instead of the log")
                raise FenceLost("by retention: the lease must be taken again")
            if event.name == LIVE or self._acked(event):
                continue
            if found and self._alone(event):
                self.source.put_back(event, cursor)
                break
            found.append(event)
            if self._alone(event):
                break
        if not found:
            self.worker.sleep(self.worker.random.uniform(100, 2_000))
            self._tell()
        return found

    def _is_unasked(self, event: Event) -> bool:
        """Rows come only to a consumer that asked for a copy, or if the log was trimmed (14.3)."""
        is_row = len(event.id) == 24 and Id.of(event.id).replicates
        return not self.copying and (event.name == "reset" or is_row)

    def _acked(self, event: Event) -> bool:
        if event.name == "reset":
            return False
        page, slot = Id.of(event.id).at
        return any(span.page == page and span.first <= slot <= span.last for span in self.acked)

    def _alone(self, event: Event) -> bool:
        if event.name == "reset":
            return True
        found = Id.of(event.id)
        alone = not found.replicates and found.at <= at_of(self.single)
        self.worker.saw("message came alone", alone)
        return alone

    def _hand_over(self, batch: list[Event]) -> bool:
        """Announce, write, acknowledge; False when it ends here."""
        through = _place(self.written) if self.written != self.told else None
        self._say(Acknowledgement(through, sending=_place(batch[-1].id)))
        self.told = self.written
        for index, event in enumerate(batch):
            if not self._goes_on_writing() or not self._write(batch, index, event):
                return False
        self.written = self.source.cursor
        self._acknowledge(batch)
        return True

    def _goes_on_writing(self) -> bool:
        worker = self.worker
        worker.sleep(worker.random.uniform(5, 300))
        if worker.strikes("worker_lingers"):
            worker.sleep(worker.random.uniform(1, 3) * limits.CONSUMER_LEASE_MS)
        if worker.strikes("worker_dies"):
            worker.sleep(worker.random.uniform(1_000, 20_000))
            return False
        return not worker.world.in_lull

    def _write(self, batch: list[Event], index: int, event: Event) -> bool:
        """Return True if the store took it."""
        worker, holds = self.worker, self.worker.holds(self.fence)
        if not self.ledger.begins(self.fence, event.id, event.name, holds=holds):
            return False
        if _poisonous(event) or worker.strikes("worker_fails"):
            known = len(batch) == 1 or worker.random.random() < 0.5
            if known and index:
                self._say(Acknowledgement(_place(batch[index - 1].id)))
            worker.fail(self.fence, event.id if known and len(event.id) == 24 else "")
            return False
        self.ledger.writes(self.fence, event.id, event.name, event.data, holds=holds)
        return True

    def _acknowledge(self, batch: list[Event]) -> None:
        """Acknowledge all at once, or each by itself in some order."""
        entries = [_place(event.id) for event in batch]
        if all(isinstance(each, Place) for each in entries) and self.worker.random.random() < 0.5:
            self.worker.random.shuffle(entries)
            while entries:
                some = self.worker.random.randint(1, len(entries))
                self._say(Acknowledgement(ids=tuple(entries[:some])))
                del entries[:some]
                if self.worker.strikes("worker_dies"):
                    raise FenceLost("died")
            return
        self._tell()

    def _tell(self) -> None:
        """Acknowledge that everything taken is written."""
        cursor = self.source.cursor
        through = _place(cursor) if cursor != self.told else None
        self._say(Acknowledgement(through))
        self.told = self.written = cursor

    def _say(self, said: Acknowledgement) -> None:
        self.session = self.worker.say(self.fence, said)


def _place(id: str) -> Any:
    return parse(id) if len(id) == 24 else None


def _poisonous(event: Event) -> bool:
    found = Id.of(event.id.rjust(24, "0"))
    return not found.replicates and (found.page * 7 + found.slot) % _POISONOUS == 5
