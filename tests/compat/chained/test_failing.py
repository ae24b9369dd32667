"""Hosts of a chain are killed, cut off and elected while clients listen everywhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from tests.compat.chained.conftest import Chain
from tests.compat.chained.place import Place, arrived, until
from tests.conformance.listeners import ReceivedEvent
from tests.e2e.consumers import BEFORE_THE_FIRST, Consumer, client, fold, raw_sse, without_repeats
from tests.e2e.consumers import place as place_of

LAST = "last"


class Producer(threading.Thread):
    """Posts a page every *pause_s* until it is stopped, and then the last one; also to a master
    that comes and goes.
    """

    def __init__(self, place: Place, name: str, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._place, self._name, self._pause_s = place, name, pause_s
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            self._post(f"v{self.acknowledged % 7}", f"w{self.acknowledged}")
        while not self._post(LAST):
            time.sleep(self._pause_s)

    def _post(self, *ids: str) -> bool:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            self._place.post(self._name, *ids)
            self.acknowledged += 1
            return True
        return False

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def is_last(heard: ReceivedEvent) -> bool:
    return bool(heard.data) and heard.data.get("id") == LAST


@contextmanager
def posting(place: Place, name: str, pause_s: float = 0.1) -> Iterator[Producer]:
    producer = Producer(place, name, pause_s)
    producer.start()
    try:
        yield producer
    finally:
        producer.stop()


def leader(chain: Chain) -> Place | None:
    """Return the leader of the cluster of the feed `led` by its own relay, if it does read."""
    for place in (chain.middle, chain.far):
        found = place.relay("led")
        if found["role"] == "leader" and found["status"] == "running":
            return place
    return None


def members_of(place: Place) -> dict[str, str]:
    """Return each member's role, as *place* knows it."""
    return {each["address"]: each["role"] for each in place.relay("led")["members"]}


def led_by(place: Place, other: Place) -> None:
    """Wait until *place* leads and *other* reads it."""
    until(lambda: place.relay("led")["role"] == "leader")
    until(lambda: other.relay("led")["upstream"] == place.feed("led"))


def test_D5_D7_D42_a_killed_host_goes_on_where_it_was(chain: Chain) -> None:
    """Under load, with clients everywhere: whole pages, in order, none twice, none missing."""
    chain.master.post("main", "first")
    arrived(chain.far, "main", 1)
    begun = [
        Consumer(client(chain.far.url, BEFORE_THE_FIRST), is_last),
        Consumer(raw_sse(f"{chain.middle.url}ops", BEFORE_THE_FIRST), is_last),
        Consumer(raw_sse(f"{chain.master.url}ops", BEFORE_THE_FIRST), is_last),
    ]
    with posting(chain.master, "main"):
        time.sleep(1)
        chain.middle.kill()
        chain.middle.start()
        time.sleep(1)
    heard = [without_repeats(each.done()) for each in begun]
    ids = [[event.id for event in each] for each in heard]
    assert ids[0] == ids[1] == ids[2] == [entry[0] for entry in chain.master.log("main")]
    assert chain.far.log("main") == chain.master.log("main")


def test_D38_there_is_one_leader(chain: Chain) -> None:
    """The others read it; both are listed as members."""
    chain.master.post("led", "a")
    until(lambda: leader(chain) is not None)
    first = leader(chain)
    assert first is not None
    second = chain.far if first is chain.middle else chain.middle
    led_by(first, second)
    assert second.relay("led")["role"] == "follower"
    wanted = {first.feed("led"): "leader", second.feed("led"): "follower"}
    until(lambda: members_of(first) == wanted)  # they say what they are every few seconds
    for place in (first, second):
        arrived(place, "led", 1)
        assert place.log("led") == chain.master.log("led")


def test_D41_D40_a_leader_that_is_cut_off_gives_up_its_lease(chain: Chain) -> None:
    """The other one takes it, and is read; both logs stay whole, and healing changes nothing."""
    if leader(chain) is not chain.far:
        chain.middle.act("led", "shutdown")
        until(lambda: leader(chain) is chain.far)
        chain.middle.act("led", "start")
    led_by(chain.far, chain.middle)
    with posting(chain.master, "led"):
        chain.way.cut()
        until(lambda: leader(chain) is chain.middle)
        led_by(chain.middle, chain.far)
        chain.way.heal()
    until(lambda: chain.far.log("led") == chain.master.log("led"))
    assert chain.middle.log("led") == chain.master.log("led")
    assert leader(chain) is chain.middle


FEED = "led"
PROMOTED_S = 30.0  # the promise; on a quiet machine it takes some five
PAUSE_S = 0.4  # between pages: `/log` returns a thousand entries at once
FAILURES = 6  # a kill, a partition, its end, and each of three hosts restarted


def listening(places: Sequence[Place], cursor: str) -> list[Consumer]:
    """Return a consumer by WebSocket and one by SSE at each place."""
    return [
        consumer
        for place in places
        for consumer in (
            Consumer(client(place.url, cursor, feed=FEED, ws_url=place.ws_url), is_last),
            Consumer(raw_sse(f"{place.feed(FEED)}/ops", cursor), is_last),
        )
    ]


def pages_received_again(heard: Sequence[ReceivedEvent]) -> set[str]:
    """Return the pages of events that arrived after a later one."""
    again, latest = set(), ""
    for event in heard:
        if place_of(event) <= latest:
            again.add(event.id[:18])
        latest = max(latest, place_of(event))
    return again


def led(chain: Chain, *who: Place) -> None:
    until(lambda: leader(chain) in who, within_s=PROMOTED_S)


def test_D21_D39_D40_D42_clients_everywhere_hear_all_of_it(chain: Chain) -> None:
    """The leader killed, which comes back as a follower, the other one cut off and healed, each
    host restarted: the copy of each client equals the master's state, and no failure repeats more
    than a page to any client.
    """
    chain.master.post(FEED, "first")
    led(chain, chain.middle, chain.far)
    places = (chain.master, chain.middle, chain.far)
    before = chain.master.log(FEED)
    # If a cursor's page is not copied yet, its time counts, and a client receives pages again.
    until(lambda: all(place.log(FEED) == before for place in places))
    clients = listening(places, before[-1][0])
    with posting(chain.master, FEED, PAUSE_S) as producer:
        first = leader(chain)
        assert first is not None
        second = chain.far if first is chain.middle else chain.middle
        first.kill()
        until(lambda: second.relay(FEED)["role"] == "leader", within_s=PROMOTED_S)
        first.start()
        led_by(second, first)
        chain.way.cut()
        led(chain, chain.middle)
        chain.way.heal()
        for place in (chain.far, chain.middle, chain.master):
            place.stop()
            place.start()
        led(chain, chain.middle, chain.far)

    heard = [each.done(within_s=120) for each in clients]
    log = chain.master.log(FEED)[len(before) :]
    assert producer.acknowledged > FAILURES
    for each in heard:
        assert [event.id for event in without_repeats(each)] == [entry[0] for entry in log]
        assert len(pages_received_again(each)) <= FAILURES
        assert fold(each) == fold(heard[0])
    until(lambda: chain.far.log(FEED) == chain.middle.log(FEED) == chain.master.log(FEED))
    assert chain.far.state(FEED) == chain.middle.state(FEED) == chain.master.state(FEED)
