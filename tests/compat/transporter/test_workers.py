"""The guarantees for a worker of a named consumer, and the worked examples of the promise."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from tests.compat.oplog.feed import Feed
from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe, Store
from tidings.client import FellOff, Message, Refused


def test_T1_what_a_writer_is_sent_is_in_the_log(pipe: Pipe) -> None:
    """Looked up while it is written, each message is there."""
    pipe.register("c0")
    seen: list[list[str]] = []

    def write(batch: Sequence[Message]) -> None:
        found = pipe.api.log({"from": batch[0].id, "to": batch[-1].id})["entries"]
        assert [each["id"] for each in found] == [message.id for message in batch]
        seen.append([message.id for message in batch])

    with pipe.working("c0", write):
        pipe.post("aaa")
        until(lambda: sum(map(len, seen)) == 3)


def test_T2_messages_follow_each_other(pipe: Pipe) -> None:
    """Their ids ascend, in the order in which they were posted, from the first one on."""
    pipe.register("c0")
    pipe.post("ab", together=False)
    pipe.post("cde")
    places = [each[8:] for each in pipe.ids]
    assert places == sorted(set(places))
    assert places[0] == f"{1:010x}{0:06x}"
    pipe.work("c0", Store(), range(5))


def test_T9_T11_what_the_filter_leaves_out_is_acknowledged(pipe: Pipe) -> None:
    """For that writer alone; also as the last message, and while another is pending."""
    pipe.register("c0", types=["a"])
    pipe.register("c1")
    pipe.post("abab")
    store = Store(poison={2})
    pipe.fails("c0", store)
    assert pipe.position("c0") in (0, 1)
    store.poison = set()
    pipe.work("c0", store, [0, 2])
    assert pipe.position("c0") == 3
    assert pipe.position("c1") is None


def test_T10_T13_what_was_confirmed_of_a_bulk_is_acknowledged(pipe: Pipe) -> None:
    """Up to the first unconfirmed one; that one and the later ones come again, singly."""
    pipe.register("c0")
    pipe.post("aaaaa")
    store = Store(poison={2})
    assert pipe.fails("c0", store).index == 2
    assert store.batches == [[0, 1]]
    assert pipe.position("c0") == 1
    assert pipe.api.show("c0")["failure"]["id"] == pipe.ids[2]
    store.poison = set()
    pipe.work("c0", store, [0, 1, 2, 3, 4])
    assert store.batches == [[0, 1], [2], [3], [4]]


def test_T12_an_acknowledgement_covers_nothing_that_was_not_written(pipe: Pipe) -> None:
    """A worker dies with a batch in hand that it wrote half of: all of it comes again."""
    pipe.register("c0")
    pipe.post("aaaa")
    stuck, written = threading.Event(), threading.Event()

    def write(batch: Sequence[Message]) -> None:
        written.set()
        stuck.wait(60)

    with pipe.working("c0", write, bulk=2):
        assert written.wait(60)
        assert pipe.position("c0") is None
        other = Store()
        pipe.work("c0", other, [0, 1, 2, 3])
        assert other.batches[:2] == [[0], [1]]
        stuck.set()
    assert pipe.position("c0") == 3


def test_T14_a_graceful_stop_does_not_acknowledge_what_failed(pipe: Pipe) -> None:
    """It is reported as failed, and closing the worker changes nothing."""
    pipe.register("c0")
    pipe.post("aa")
    pipe.fails("c0", Store(poison={0}))
    assert pipe.position("c0") is None
    assert pipe.api.show("c0")["state"] == "failed"


def test_T8_nothing_new_comes_before_what_is_owed(pipe: Pipe) -> None:
    """Later posts wait for their turn, and come in bulk again."""
    pipe.register("c0")
    pipe.post("aaa")
    store = Store(poison={0})
    pipe.fails("c0", store)
    pipe.post("aaa")
    store.poison = set()
    pipe.work("c0", store, range(6))
    assert store.batches == [[0], [1], [2], [3, 4, 5]]


def test_T15_a_lower_acknowledgement_moves_nothing(pipe: Pipe) -> None:
    """Only an operator does."""
    pipe.register("c0")
    pipe.post("aaaa")
    pipe.ack("c0", through=2)
    pipe.ack("c0", 0, through=1)
    assert pipe.position("c0") == 2


def test_T20_a_consumer_is_one_line(pipe: Pipe) -> None:
    """However often and however scattered it acknowledged."""
    pipe.register("c0")
    pipe.post("a" * 9)
    for number in (8, 3, 4, 0, 3):
        pipe.ack("c0", number)
    (found,) = pipe.api.all()
    assert found["acked"] == "1.3-4 1.8-8"
    assert pipe.position("c0") == 0


def test_T24_a_clean_stop_waits_for_what_is_being_written(pipe: Pipe) -> None:
    """And acknowledges it; nothing comes again."""
    pipe.register("c0")
    pipe.post("aaa")
    begun, store = threading.Event(), Store()

    def write(batch: Sequence[Message]) -> None:
        begun.set()
        time.sleep(2)
        store.write(batch)

    with pipe.working("c0", write) as running:
        assert begun.wait(60)
        running.worker.close()
        assert store.written == [0, 1, 2]
    assert running.error is None
    assert pipe.position("c0") == 2
    assert pipe.api.show("c0")["worker"] is None


def test_one_worker_at_a_time_and_the_next_takes_over(pipe: Pipe) -> None:
    """Three of them: nothing is lost, nothing comes twice, and the order is that of the log."""
    pipe.register("c0")
    store = Store()
    names = ("one", "two", "three")
    for name in names:
        with pipe.working("c0", store.write, worker=name):
            pipe.post("a" * 20)
            until(lambda: len(store.written) == len(pipe.ids))
            with pytest.raises(Refused) as held:
                pipe.api.act("c0", "lease", {"worker": "other"})
            assert held.value.code == "consumer_held"
    assert store.written == list(range(60))


def test_a_slow_consumer_does_not_hold_up_another(pipe: Pipe) -> None:
    """One is stopped, the other is at the end."""
    pipe.register("slow", "quick")
    stuck = threading.Event()

    def write(batch: Sequence[Message]) -> None:
        stuck.wait(60)

    with pipe.working("slow", write):
        pipe.post("a" * 10)
        pipe.work("quick", Store(), range(10))
        stuck.set()


def test_a_copy_comes_before_the_log(pipe: Pipe) -> None:
    """Every object, after a reset; then the changes."""
    pipe.post("aab")
    Feed(pipe.port, pipe.feed).handled(1)
    pipe.register("c0", **{"from": "copy"})
    store = Store()
    with pipe.working("c0", store.write):
        until(lambda: len(store.written) == 3)
        pipe.post("a")
        until(lambda: 3 in store.written)
    assert store.resets == 1
    assert sorted(store.written) == [0, 1, 2, 3]
    assert pipe.position("c0") == 3


def test_paused_and_sent_again(pipe: Pipe) -> None:
    """A worker notices both without being started again."""
    pipe.register("c0")
    pipe.post("aa")
    store = Store(poison={0})
    pipe.fails("c0", store)
    pipe.operate("c0", "park")
    store.poison = set()
    with pipe.working("c0", store.write):
        until(lambda: store.written == [1])
        pipe.operate("c0", "retry", id="all")
        until(lambda: store.written == [1, 0])
        until(lambda: pipe.api.show("c0")["parked"] == 0)
        pipe.operate("c0", "pause")
        pipe.post("a")
        time.sleep(3)
        assert store.written == [1, 0]
        pipe.operate("c0", "resume")
        until(lambda: store.written == [1, 0, 2])


def test_T38_a_worker_names_a_consumer_that_is_there(pipe: Pipe) -> None:
    """An unknown name is refused: no consumer starts again because of a typo."""
    with pipe.working("c9", Store().write) as running:
        running.thread.join(60)
    assert isinstance(running.error, Refused)
    assert not isinstance(running.error, FellOff)
    assert running.error.code == "unknown_consumer"


LOG = "aabbaabbcacbaacb"  # messages 0 to 15, by their type
CLOSED, ACTIVE = "aabbaabbcacbaacba", "aabbaabbcac"  # 0 to 16, 17 to 27


def test_T3_T4_after_a_kill_each_one_gets_what_it_did_not_acknowledge(pipe: Pipe) -> None:
    """c0 is at 12 and c1 at 13: restarted they are sent 13 to 15, and 14 and 15."""
    pipe.register("c0", "c1")
    pipe.post(LOG)
    pipe.ack("c0", through=12)
    pipe.ack("c1", through=13)
    first, second = Store(), Store()
    pipe.work("c0", first, [13, 14, 15])
    assert pipe.position("c1") == 13
    pipe.work("c1", second, [14, 15])
    assert (pipe.position("c0"), pipe.position("c1")) == (15, 15)


def test_T5_T6_T7_a_failed_bulk_comes_again_one_at_a_time(pipe: Pipe) -> None:
    """9 to 15 fail together, then 9 to 13 are written singly, and 14 stops it at 13."""
    pipe.register("c0")
    pipe.post("a" * 16)
    pipe.ack("c0", through=8)
    store = Store()

    class Bulk(Exception):
        """The store took nothing of it, and does not say why."""

    def refuse(batch: object) -> None:
        raise Bulk

    with pipe.working("c0", refuse) as running:
        running.thread.join(60)
    assert isinstance(running.error, Bulk)
    assert pipe.position("c0") == 8
    found = pipe.api.log({"from": pipe.ids[9]})["entries"]
    assert [int(each["data"]["id"]) for each in found] == [9, 10, 11, 12, 13, 14, 15]

    store.poison = {14}
    pipe.fails("c0", store)
    assert store.batches == [[9], [10], [11], [12], [13]]
    assert pipe.position("c0") == 13
    assert pipe.api.show("c0")["failure"]["error"] == "14 is too long"


def test_T22_only_what_was_not_acknowledged_comes_again(pipe: Pipe) -> None:
    """A is at 26, B at 23, C at 27: nothing but 24, of B, is due."""
    pipe.register("c0")
    pipe.post(CLOSED)
    pipe.post(ACTIVE)
    log = CLOSED + ACTIVE
    offsets = {"a": 26, "b": 23, "c": 27}
    acked = [number for number, kind in enumerate(log) if number <= offsets[kind]]
    assert sorted(set(range(28)) - set(acked)) == [24]
    pipe.ack("c0", *acked)
    assert pipe.position("c0") == 23
    pipe.work("c0", Store(), [24])
    assert pipe.position("c0") == 27
