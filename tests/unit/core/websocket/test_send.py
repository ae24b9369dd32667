"""Delivery: all messages in order or the connection is cut, also by many senders at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.fakes import MemorySockets
from tests.unit.core.scene import Scene
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.send import Close, Send, SendCounts, Steps, Task, Turn, Wait, Window


class Slow(MemorySockets):
    """Takes a message only at the *nth* attempt."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.nth, self.attempts = nth, 0

    def send(self, connection_id: str, frame: str) -> Outcome:
        self.attempts += 1
        if self.attempts % self.nth:
            return Outcome.BUSY
        return super().send(connection_id, frame)


def test_messages_arrive_in_order(scene: Scene) -> None:
    """They are counted."""
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2", "3"])
    assert scene.sockets.sent["c"] == ["1", "2", "3"]
    assert scene.counted == {"FramesSent": 3}


def test_who_is_busy_is_tried_again() -> None:
    """The pauses grow; the order is kept."""
    scene = Scene(sockets=Slow(limits.SEND_ATTEMPTS_MAX))
    scene.connect("c")

    assert scene.delivery.send("c", ["1", "2"])
    assert scene.sockets.sent["c"] == ["1", "2"]
    assert scene.waits == [50, 100, 200] * 2


def test_who_stays_busy_is_cut(scene: Scene) -> None:
    """It is closed and removed after the limited attempts; no later message is sent."""
    scene.connect("c")
    scene.sockets.busy.add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.sockets.closed == ["c"] and scene.connections.get("c") is None
    assert (scene.waits, scene.counted) == ([50, 100, 200], {"ConnectionsClosed": 1})


@pytest.mark.parametrize(
    ("trouble", "counted"),
    [
        ("unknown", {"SendsUnknown": 1, "ConnectionsClosed": 1}),
        ("refused", {"SendsRefused": 1, "ConnectionsClosed": 1}),
        ("gone", {"ConnectionsGone": 1}),
    ],
)
def test_who_cannot_be_tried_again_is_forgotten(
    scene: Scene, trouble: str, counted: dict[str, int]
) -> None:
    """Only this client is removed, at once, and closed if it is connected: no later message may
    arrive.
    """
    for name in ("c", "other"):
        scene.connect(name)
    getattr(scene.sockets, trouble).add("c")

    assert not scene.delivery.send("c", ["1", "2"])

    assert scene.connections.get("c") is None and scene.connections.get("other")
    assert scene.sockets.closed == ([] if trouble == "gone" else ["c"])
    assert scene.sockets.late == ([("c", "1")] if trouble == "unknown" else [])
    assert (scene.waits, scene.counted) == ([], counted)


def test_who_cannot_be_closed_is_forgotten_all_the_same() -> None:
    """It is removed after limited attempts: later messages could overtake earlier ones."""

    class Stuck(MemorySockets):
        def close(self, connection_id: str) -> None:
            raise Unavailable("no answer")

    scene = Scene(sockets=Stuck())
    scene.connect("c")
    scene.delivery.cut("c")

    assert scene.waits == [50, 100, 200, 400]
    assert scene.connections.get("c") is None


def test_cutting_closes_first() -> None:
    """Its client knows before we forget it: otherwise it would wait on a dead connection."""
    order: list[str] = []

    class RecordingSockets(MemorySockets):
        def close(self, connection_id: str) -> None:
            order.append("closed" if scene.connections.get("c") else "forgotten before")
            super().close(connection_id)

    scene = Scene(sockets=RecordingSockets())
    scene.connect("c")
    scene.delivery.cut("c")

    assert order == ["closed"]
    assert scene.connections.get("c") is None


def test_sending_nothing_is_success(scene: Scene) -> None:
    """This holds for unknown connections too."""
    assert scene.delivery.send("nobody", [])


ANSWER_MS = 20


@dataclass
class Service:
    """Accepts *rate* requests a second from all senders, with a burst of *burst*, and answers after
    `ANSWER_MS`. Clients in *stuck* read nothing, those in *gone* have disconnected.
    """

    rate: float = 1e9
    burst: float = 1e9
    stuck: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    silent_until_ms: int = 0  # refuses everything before
    now_ms: int = 1_000_000
    messages: dict[str, list[str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    closed: list[str] = field(default_factory=list)
    most: int = 0
    _tokens: float = 0.0
    _filled_ms: int = 0
    _answers: list[tuple[int, int, Turn, Task, Outcome]] = field(default_factory=list)
    _count: int = 0

    def drive(self, *turns: Turn) -> None:
        """Run all turns until they are done; they share the clock and the limit."""
        self._tokens, self._filled_ms = self.burst, self.now_ms
        while not all(turn.done for turn in turns):
            for turn in turns:
                while (task := turn.next(self.now_ms)) is not None:
                    self._take(turn, task)
            self.most = max(self.most, len(self._answers))
            self._pass_time(turns)

    def _pass_time(self, turns: tuple[Turn, ...]) -> None:
        times = [due for turn in turns if (due := turn.due_ms(self.now_ms)) is not None]
        if self._answers:
            times.append(self._answers[0][0])
        if not times:
            assert all(turn.done for turn in turns), "nothing would ever happen"
            return
        self.now_ms = max(self.now_ms, min(times))
        while self._answers and self._answers[0][0] <= self.now_ms:
            _, _, turn, task, outcome = heapq.heappop(self._answers)
            turn.record_outcome(task, outcome, self.now_ms)

    def _take(self, turn: Turn, task: Task) -> None:
        self._count += 1
        answer = self.now_ms + ANSWER_MS, self._count, turn, task, self._outcome(task)
        heapq.heappush(self._answers, answer)

    def _outcome(self, task: Task) -> Outcome:
        request = task.request
        if not self._has_token() or (
            isinstance(request, Send) and request.connection_id in self.stuck
        ):
            self.refused[request.connection_id] += 1
            return Outcome.THROTTLED
        if isinstance(request, Close):
            self.closed.append(request.connection_id)
            return Outcome.SENT
        if request.connection_id in self.gone:
            return Outcome.GONE
        self.messages.setdefault(request.connection_id, []).append(request.message)
        return Outcome.SENT

    def _has_token(self) -> bool:
        passed_ms, self._filled_ms = self.now_ms - self._filled_ms, self.now_ms
        self._tokens = min(self.burst, self._tokens + passed_ms * self.rate / 1000)
        if self._tokens < 1 or self.now_ms < self.silent_until_ms:
            return False
        self._tokens -= 1
        return True


@dataclass
class Sender:
    """A process with a window of its own."""

    service: Service
    window: Window = field(default_factory=Window)
    scene: Scene = field(default_factory=Scene)
    counts: SendCounts = field(default_factory=SendCounts)

    @property
    def lost(self) -> list[str]:
        return self.counts.lost

    def turn(self, sent: Mapping[str, Sequence[str]]) -> Turn:
        steps = (self.scene.delivery.steps(*each, self.counts) for each in sent.items())
        return Turn(steps, self.window)

    def send(self, sent: Mapping[str, Sequence[str]]) -> int:
        """Milliseconds it took.

        Raises:
            Unavailable: it was given up.
        """
        began_ms, turn = self.service.now_ms, self.turn(sent)
        self.service.drive(turn)
        if turn.errors:
            raise turn.errors[0]
        return self.service.now_ms - began_ms


def one_each(count: int, sender: int = 0) -> dict[str, list[str]]:
    return {f"c{sender}-{number}": ["m"] for number in range(count)}


def test_it_begins_with_few_and_has_many_under_way() -> None:
    """A small turn opens few connections; a large one is bounded."""
    service = Service()
    Sender(service).send(one_each(limits.SENDS_FIRST + 1))
    assert service.most == limits.SENDS_FIRST
    Sender(service).send(one_each(10_000))
    assert service.most == limits.SENDS_MAX
    assert sum(map(len, service.messages.values())) == 10_000 + limits.SENDS_FIRST + 1


def test_messages_of_a_connection_stay_in_order() -> None:
    """One of them is in flight at a time, independent of other connections."""
    sent = {f"c{at}": [f"{at}.{number}" for number in range(at % 5)] for at in range(200)}
    service = Service(rate=2_000, burst=50)
    sender = Sender(service)
    sender.send(sent)
    assert service.messages == {name: batch for name, batch in sent.items() if batch}
    assert not sender.lost


@pytest.mark.parametrize("senders", [1, 4])
def test_above_the_limit_nobody_is_cut(senders: int) -> None:
    """The service refuses again and again, and most of its capacity is used."""
    service = Service(rate=1_000, burst=100)
    group = [Sender(service) for _ in range(senders)]
    began_ms = service.now_ms
    turns = [each.turn(one_each(8_000 // senders, at)) for at, each in enumerate(group)]
    service.drive(*turns)
    took_ms = service.now_ms - began_ms
    assert [each.lost for each in group] == [[]] * senders
    assert len(service.messages) == 8_000
    assert sum(service.refused.values()) > 10
    assert 7_900 <= took_ms <= 8_000 / 0.8


def test_a_throttle_of_all_uses_up_no_attempts() -> None:
    """During two seconds every request is refused: all clients wait, then all are served."""
    service = Service()
    service.silent_until_ms = service.now_ms + 2_000
    sender = Sender(service)
    sender.send(one_each(100))
    assert not sender.lost and len(service.messages) == 100
    assert sum(service.refused.values()) < 60  # not each of them again and again


def test_a_throttle_without_end_is_given_up() -> None:
    """The run has to end in time. Clients that are not disconnected get the page in the next
    run."""
    service = Service()
    service.silent_until_ms = service.now_ms + 3_600_000
    began_ms, sender = service.now_ms, Sender(service)
    with pytest.raises(Unavailable):
        sender.send(one_each(10_000))
    assert service.now_ms - began_ms < 3 * limits.SEND_PATIENCE_MS
    assert len(sender.lost) < 20
    assert not service.messages


def test_who_does_not_read_is_cut_alone() -> None:
    """It is disconnected after its own attempts; the others are served in time, also in the next
    batch.
    """
    service, sound = Service(stuck=frozenset({"c0-3"})), Service()
    sender = Sender(service)
    took_ms = sender.send(one_each(2_000))
    assert sender.lost == ["c0-3"] and service.closed == ["c0-3"]
    assert service.refused["c0-3"] == limits.SEND_ATTEMPTS_MAX
    assert len(service.messages) == 1_999
    assert took_ms < Sender(sound).send(one_each(2_000)) + 500


@pytest.mark.parametrize("readers", [0, 1, 1_000])
def test_crowds_that_do_not_read_are_cut(readers: int) -> None:
    """They look like a throttle, so the sender waits for them longer."""
    stuck = one_each(200, sender=1)
    service = Service(stuck=frozenset(stuck))
    sender = Sender(service)
    took_ms = sender.send(stuck | one_each(readers))
    assert sorted(sender.lost) == sorted(stuck) == sorted(service.closed)
    assert len(service.messages) == readers
    assert took_ms < 3 * limits.SEND_PATIENCE_MS


def test_what_was_refused_goes_before_what_is_new() -> None:
    """A message of ten thousand does not wait for all of them again."""
    order: list[str] = []

    class RecordingService(Service):
        def _outcome(self, task: Task) -> Outcome:
            outcome = super()._outcome(task)
            if outcome is Outcome.SENT:
                order.append(task.request.connection_id)
            return outcome

    service = RecordingService(stuck=frozenset())
    service.silent_until_ms = service.now_ms + 10  # refuses the first ones, once
    Sender(service).send(one_each(1_000))
    first = {f"c0-{number}" for number in range(limits.SENDS_FIRST)}
    assert set(order[: 4 * limits.SENDS_FIRST]) > first


def test_an_error_of_one_is_raised_behind_the_others() -> None:
    """The others are delivered."""

    def broken() -> Steps:
        yield Wait(1)
        raise ValueError("broken")

    def sound() -> Steps:
        yield Send("c", "m")

    service = Service()
    turn = Turn([broken(), sound()], Window())
    service.drive(turn)
    assert service.messages == {"c": ["m"]}
    assert [str(error) for error in turn.errors] == ["broken"]


def throttle(window: Window, sent_ms: int, now_ms: int) -> None:
    """Refuse some, each of another connection, that were sent at once."""
    for number in range(limits.SEND_REFUSED_FEW + 1):
        window.record_refusal(f"c{number}", sent_ms, now_ms)


class TestWindow:
    def test_a_few_are_refused_for_themselves(self) -> None:
        """However often they are refused, they do not delay other clients."""
        window = Window()
        for number in range(100):
            assert not window.record_refusal(f"c{number % limits.SEND_REFUSED_FEW}", 0, 20)
        assert window.has_room(limits.SENDS_FIRST - 1, 20)

    def test_who_was_refused_is_forgotten_behind_those_that_got_through(self) -> None:
        """One refusal in a hundred requests does not become a throttle over time."""
        window = Window()
        for number in range(100):
            assert not window.record_refusal(f"c{number}", number, number)
            for _ in range(100):
                window.record_success(number)

    def test_a_throttle_halves_it_once(self) -> None:
        """Refusals of requests that were in flight together count once."""
        window = Window()
        for _ in range(3):
            throttle(window, sent_ms=0, now_ms=20)
        assert window.opens_ms == 20 + limits.SEND_BACKOFF_MS
        assert not window.has_room(0, window.opens_ms - 1)
        half = limits.SENDS_FIRST // 2
        assert window.has_room(half - 1, window.opens_ms)
        assert not window.has_room(half, window.opens_ms)

    def test_pauses_grow_until_something_gets_through(self) -> None:
        """They never exceed their limit; there is always room for one request."""
        window = Window()
        pauses, now_ms = list[int](), 0
        for _ in range(8):
            throttle(window, now_ms, now_ms)
            pauses.append(window.opens_ms - now_ms)
            now_ms = window.opens_ms
            assert window.has_room(0, now_ms)
        assert pauses == [50, 100, 200, 400, 800, 800, 800, 800]
        window.record_success(now_ms)
        throttle(window, now_ms, now_ms)
        assert window.opens_ms - now_ms == limits.SEND_BACKOFF_MS

    def test_it_grows_slowly_behind_a_throttle(self) -> None:
        """It doubles with each round before the first throttle, and grows by one a round after
        it."""
        window = Window()
        for _ in range(limits.SENDS_FIRST):
            window.record_success(0)
        assert window.has_room(2 * limits.SENDS_FIRST - 1, 0)
        throttle(window, 0, 0)
        for _ in range(limits.SENDS_FIRST + 1):
            window.record_success(0)
        assert window.has_room(limits.SENDS_FIRST, 100)
        assert not window.has_room(limits.SENDS_FIRST + 1, 100)
