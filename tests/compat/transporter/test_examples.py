"""The worked examples of the promise, unchanged."""

from __future__ import annotations

from tests.compat.transporter.pipe import Pipe, Store

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
