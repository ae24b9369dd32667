"""Operators steer chained feeds, whose pages, ids and cursors are those of the master."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from tests.compat.chained.conftest import OBSERVED_FEEDS, Chain
from tests.compat.chained.place import Place, arrived, until
from tests.contract.upstream import UpstreamContract
from tests.unit.client import command
from tidings.client.reconnect import follow
from tidings.core.replication.source import Mod
from tidings.http.outbound.upstream import HttpUpstream


def tidings(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return command.tidings("relays", *words, "--url", place.url)


def left_behind(chain: Chain, name: str) -> None:
    """Copy two pages, then post and trim on the master while the copy is paused."""
    chain.master.post(name, "a", "b")
    chain.master.post(name, "gone")
    arrived(chain.far, name, 2)
    assert chain.far.act(name, "pause").status_code == 200
    chain.master.post(name, "gone", event="delete")
    chain.master.post(name, "a")
    chain.master.post(name, "c")
    until(lambda: len(chain.master.state(name)) == 3)
    chain.master.raise_floor(name, 5)
    assert chain.far.act(name, "resume").status_code == 200


def test_D22_D23_D24_a_feed_is_steered_from_the_command_line(chain: Chain) -> None:
    """Paused, resumed, shut down and started, from its saved place, without loss or repeat."""
    name, here = "steered", chain.middle
    chain.master.post(name, "a")
    arrived(here, name, 1)
    assert tidings(here, "pause", name).stdout == "steered is paused at page 1\n"
    chain.master.post(name, "b")
    assert tidings(here, "resume", name).returncode == 0
    arrived(here, name, 2)
    assert tidings(here, "shutdown", name).stdout == "steered is shutdown at page 2\n"
    assert tidings(here, "resume", name).returncode == 1
    assert "steered" in tidings(here, "list").stdout
    assert tidings(here, "list", "--check", "--json").returncode == 3
    chain.master.post(name, "c")
    assert tidings(here, "start", name).returncode == 0
    arrived(here, name, 3)
    assert here.log(name) == chain.master.log(name)
    assert here.relay(name)["repeated"] == 0


def test_D16_waiting_is_loud_and_ends_with_a_reset(chain: Chain) -> None:
    """Nothing is skipped; after a reset everything that there is has been copied."""
    left_behind(chain, "wait")
    until(lambda: chain.far.relay("wait")["status"] == "fell-off")
    found = chain.far.relay("wait")
    assert "page 5" in found["error"] and found["page"] == 2
    told = tidings(chain.far, "reset", "wait", "--to", "everything", "--why", "a test")
    assert told.returncode == 0, told.stderr
    arrived(chain.far, "wait", 5)
    until(lambda: chain.far.state("wait") == chain.master.state("wait"))


def test_D16_bootstrapping_tells_consumers_everything(chain: Chain) -> None:
    """The state is the upstream's, and a client with an old cursor receives the deletions."""
    with chain.far.listening("boot", "0") as listener:
        assert listener.next().name == "reset"
    left_behind(chain, "boot")
    arrived(chain.far, "boot", 5)
    until(lambda: chain.far.state("boot") == chain.master.state("boot"))
    assert sorted(chain.far.state("boot")) == ["video/a", "video/b", "video/c"]
    assert chain.far.relay("boot")["status"] == "running"
    chain.master.post("boot", "d")
    arrived(chain.far, "boot", 6)
    assert chain.far.log("boot") == chain.master.log("boot")[-len(chain.far.log("boot")) :]


def test_D20_latest_forgets_what_was_here(chain: Chain) -> None:
    """And continues with new events."""
    left_behind(chain, "latest")
    until(lambda: chain.far.relay("latest")["page"] >= 5)
    chain.master.post("latest", "d")
    arrived(chain.far, "latest", 6)
    until(lambda: sorted(chain.far.state("latest")) == ["video/d"])
    assert chain.far.log("latest") == chain.master.log("latest")[-1:]


_NUMBERS = count()


@dataclass
class OnHost:
    """Implements `UpstreamFeed`."""

    place: Place
    name: str
    upstream: HttpUpstream = field(default_factory=lambda: HttpUpstream(lambda: ""))
    pages: int = 0

    @property
    def url(self) -> str:
        return self.place.feed(self.name)

    def post(self, kind: str, *ids: str, event: str = "update") -> None:
        self.place.post(self.name, *ids, event=event, kind=kind)
        self.pages += 1

    def projected(self) -> None:
        address = f"{self.url}/status"
        until(lambda: _state(self.place.client.get(address).json()) == self.pages)

    def raise_floor(self, page: int) -> None:
        self.place.raise_floor(self.name, page)


def _state(status: dict[str, list[dict[str, int]]]) -> int:
    return next(each["checkpoint"] for each in status["followers"] if str(each["name"]) == "state")


@pytest.fixture
def upstream_feed(chain: Chain) -> OnHost:
    return OnHost(chain.master, OBSERVED_FEEDS[next(_NUMBERS)])


class TestHttpUpstream(UpstreamContract): ...


@pytest.fixture(scope="module")
def posted(chain: Chain) -> Chain:
    """Four pages at the master, which have reached the end of the chain."""
    chain.master.post("main", "a", "b")
    chain.master.post("main", "a")
    chain.master.post("main", "c", kind="user")
    chain.master.post("main", "b", event="delete")
    for place in (chain.middle, chain.far):
        arrived(place, "main", 4)
    return chain


def changes(place: Place, query: str) -> Any:
    return place.client.get(f"{place.feed('main')}/changes?{query}").json()


def test_D12_an_upstream_that_is_down_is_tried_again(posted: Chain) -> None:
    """It was down when its copy began; then everything was copied."""
    assert posted.before["status"] in ("new", "retrying")
    assert posted.before["page"] == 0
    found = posted.middle.relay("main")
    assert (found["status"], found["failures"], found["error"]) == ("running", 0, "")


def test_D2_D3_a_chain_of_three_has_one_log(posted: Chain) -> None:
    """Ids, events and data are the same; no checkpoint means everything."""
    log = posted.master.log("main")
    assert len(log) == 5
    assert posted.middle.log("main") == log
    assert posted.far.log("main") == log
    assert [place.relay("main")["min"]["page"] for place in (posted.middle, posted.far)] == [1, 1]


def test_the_state_is_the_masters(posted: Chain) -> None:
    """A consumer that requests everything receives the same objects."""
    assert sorted(posted.master.state("main")) == ["user/c", "video/a"]
    until(lambda: posted.far.state("main") == posted.master.state("main"))


@pytest.mark.parametrize("back", [False, True], ids=["to-the-copy", "and-back"])
def test_D18_a_cursor_goes_on_wherever_one_reads(posted: Chain, back: bool) -> None:
    """By SSE, WebSocket and `/changes`, from a place within a page."""
    first, second = (posted.far, posted.master) if back else (posted.master, posted.far)
    log = first.log("main")
    cursor, rest = log[0][0], log[1:]

    with second.listening("main", cursor) as listener:
        assert [listener.next().id for _ in rest] == [entry[0] for entry in rest]
    events = follow(second.url, cursor=cursor)
    assert [next(events).id for _ in rest] == [entry[0] for entry in rest]
    (seen,) = changes(first, "limit=1")["changes"]
    assert changes(second, f"since={seen['_id']}") == changes(first, f"since={seen['_id']}")


def test_named_consumers_work_at_a_copy(posted: Chain) -> None:
    """Their positions are ids, as everywhere."""
    address = f"{posted.far.feed('main')}/consumers/index"
    assert posted.far.client.put(address, json={"from": "oldest"}).status_code == 201
    leased = posted.far.client.post(f"{address}/lease", json={"worker": "w"}).json()
    last = posted.master.log("main")[-1][0]
    done = {"fence": leased["fence"], "through": last}
    assert posted.far.client.post(f"{address}/ack", json=done).status_code == 200
    assert posted.far.client.get(address).json()["lag_pages"] == 0


def test_posting_to_a_copy_is_refused_with_the_masters_address(posted: Chain) -> None:
    """Also at the end of the chain, also as a change; nothing is written."""
    head = posted.far.relay("main")["head"]
    operation = {"event": "update", "type": "video", "id": "x"}
    for path, body in (("ops", operation), ("changes", {"data": {}})):
        answer = posted.far.client.post(f"{posted.far.feed('main')}/{path}", json=body)
        assert answer.status_code == 409
        assert f"is a copy of {posted.master.feed('main')}: post there" in answer.text
    assert posted.far.relay("main")["head"] == head


def test_D14_D43_a_part_of_a_feed_is_copied(chain: Chain) -> None:
    """By types and shares; pages and slots are those of the master, omitted entries are counted."""
    ids = [f"v{number}" for number in range(8)]
    chain.master.post("chosen", *ids)
    chain.master.post("chosen", "u", kind="user")
    arrived(chain.middle, "chosen", 2)

    share = Mod(2, frozenset({0}))
    wanted = [
        entry
        for entry in chain.master.log("chosen")
        if entry[2]["type"] == "video" and share.holds(f"video/{entry[2]['id']}")
    ]
    assert 0 < len(wanted) < len(ids)
    assert chain.middle.log("chosen") == wanted
    found = chain.middle.relay("chosen")
    assert (found["page"], found["operations"], found["filtered"]) == (
        2,
        len(wanted),
        len(ids) + 1 - len(wanted),
    )


def test_a_cycle_is_refused(chain: Chain) -> None:
    """Two feeds that copy each other: one reports it and stops, neither has any pages."""

    def told() -> set[str]:
        return {place.relay("ring")["status"] for place in (chain.master, chain.middle)}

    until(lambda: "cycle" in told())
    assert chain.master.log("ring") == chain.middle.log("ring") == []


def test_D34_D36_D37_the_ends_and_counts_are_told(posted: Chain) -> None:
    """Times since the master and the upstream were read are two."""
    found = posted.far.relay("main")
    first, last = posted.master.log("main")[0], posted.master.log("main")[-1]
    assert found["min"]["cursor"] == first[0]
    assert found["max"]["page"] == 4
    assert found["max"]["cursor"][:18] == last[0][:18]
    assert (found["pages"], found["operations"], found["lag_pages"]) == (4, 5, 0)
    assert found["upstream_read_ms_ago"] is not None
    assert found["master_read_ms_ago"] >= found["upstream_read_ms_ago"]
    assert found["role"] == "follower" and found["upstream"] == posted.middle.feed("main")
    assert len(found["via"]) == 2
