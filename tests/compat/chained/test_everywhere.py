"""Clients at every host of a cluster, through every failure that it is made for, in one go."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.chained.conftest import Chain
from tests.compat.chained.place import Place, until
from tests.compat.chained.test_failing import is_last, leader, led_by, posting
from tests.conformance.listeners import ReceivedEvent
from tests.e2e.consumers import Consumer, client, fold, raw_sse, without_repeats
from tests.e2e.consumers import place as place_of

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
