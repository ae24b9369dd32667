"""The follower `push`: makes subscriptions live and sends them the matching events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import MemorySockets
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, Scene, line, op, unpacked
from tidings.core import limits
from tidings.core.errors import FellOff
from tidings.core.model import cursors
from tidings.core.model.cursors import START
from tidings.core.model.events import GZIP
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.operations import ERASURE_MARK, Operation, line_from
from tidings.core.model.pages import Page
from tidings.core.settings.profiles import Profile
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Change, Connection, Outcome, Subscription
from tidings.core.websocket.session import State

VIDEOS = Filter(types=frozenset({"video"}))


def live(scene: Scene, name: str = "c", wanted: Filter = EVERYTHING, since: int = 0) -> str:
    """Open a live connection with its subscription, as a join leaves it."""
    scene.connections.open(Connection(name, scene.now_ms, State.LIVE, FEED, wanted, since=since))
    scene.subscriptions.add(FEED, Subscription(name, wanted, since))
    return name


def joining(scene: Scene, name: str = "c", wanted: Filter = EVERYTHING, since: int = 0) -> Change:
    """Open a connection that waits to join; return its change, which is not posted yet."""
    scene.connections.open(Connection(name, scene.now_ms, State.JOINING, FEED, wanted, since=since))
    return Change(name, True, wanted, since, token="t")


def join(scene: Scene, **fields: Any) -> None:
    """Let a connection join, and run the follower, which may accept it or not."""
    scene.inbox.post(FEED, joining(scene, **fields))
    scene.push()


def cursor(scene: Scene, name: str) -> int:
    """Return the page of the last cursor that the client was sent."""
    sent = [message["cursor"] for message in scene.heard(name) if "cursor" in message]
    place = cursors.parse(sent[-1])
    assert isinstance(place, cursors.Place)
    return place.page


def test_a_live_connection_gets_what_it_wants(scene: Scene) -> None:
    """Events come in log order, with the cursor after all pages that were read."""
    live(scene, wanted=VIDEOS)
    scene.post(op("a"), op("u", type="user"), op("b"))
    scene.pushed(op("v", type="user"))

    assert scene.events("c") == ["a", "b"]
    assert cursor(scene, "c") == 2


def reads_of(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets each read of the subscription index from now on."""
    reads: list[str] = []

    def recorded(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def asking(*given: Any) -> Any:
            reads.append(name)
            return ask(*given)

        return asking

    for name in ("find", "all_if_at_most"):
        monkeypatch.setattr(
            scene.subscriptions, name, recorded(name, getattr(scene.subscriptions, name))
        )
    return reads


def test_few_subscriptions_are_read_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of names in a batch: a feed without subscriptions needs no look-ups."""
    reads = reads_of(scene, monkeypatch)
    scene.pushed(*(op(f"x{number}", parents=[f"user/{number}"]) for number in range(50)))
    live(scene, wanted=VIDEOS)
    scene.pushed(op("a"))

    assert reads == ["all_if_at_most", "all_if_at_most"]
    assert scene.events("c") == ["a"]


def test_a_crowded_feed_is_looked_up_and_asked_again_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too many subscriptions the read of all is tried only at intervals."""
    monkeypatch.setattr(limits, "FEW_SUBSCRIPTIONS", 1)
    live(scene, "c", wanted=VIDEOS)
    live(scene, "d", wanted=VIDEOS)
    reads = reads_of(scene, monkeypatch)
    looks = []
    for passed_ms in (0, limits.INDEX_MS - 1, 1):
        scene.now_ms += passed_ms
        scene.pushed(op(f"a{passed_ms}"))
        looks.append(reads.count("all_if_at_most"))

    assert looks == [1, 1, 2]
    assert scene.events("c") == scene.events("d") == ["a0", f"a{limits.INDEX_MS - 1}", "a1"]


def test_alike_subscriptions_are_matched_once_and_indexed_until_one_changes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation costs as much for many subscriptions with one filter as for one of them."""
    sizes, matched = list[int](), list[Operation]()
    of_few, matches = fanout.Index.of_few, Filter.matches

    def index(found: Sequence[Subscription], after: int = 0) -> fanout.Index:
        sizes.append(len(found))
        return of_few(found, after)

    def match(wanted: Filter, operation: Operation) -> bool:
        matched.append(operation)
        return matches(wanted, operation)

    monkeypatch.setattr(fanout.Index, "of_few", index)
    monkeypatch.setattr(Filter, "matches", match)
    for name in ("c", "d", "e"):
        live(scene, name, wanted=Filter(VIDEOS.types))
    for name in ("a", "b"):
        scene.pushed(op(name))
    assert (sizes, len(matched)) == ([3], 2)
    live(scene, "f", wanted=VIDEOS)
    scene.pushed(op("x"))
    assert sizes == [3, 4]
    assert [scene.events(name) for name in "def"] == [["a", "b", "x"], ["a", "b", "x"], ["x"]]


def test_a_clock_that_is_set_back_delays_no_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline in page time is then further away than it can be."""
    monkeypatch.setattr(limits, "FEW_SUBSCRIPTIONS", 1)
    live(scene, "c", wanted=VIDEOS)
    live(scene, "d", wanted=VIDEOS)
    scene.pushed(op("a"))
    reads = reads_of(scene, monkeypatch)
    scene.now_ms -= 2 * 3_600_000
    scene.pushed(op("b"))
    assert reads.count("all_if_at_most") == 1


def test_a_joining_connection_gets_what_lies_between(scene: Scene) -> None:
    """From the log, what its replay did not see and we have sent to others; then it is live."""
    scene.post_each(*"abc")
    scene.push()
    join(scene, since=1)

    assert scene.events("c") == ["b", "c"]
    assert scene.connection("c").state is State.LIVE
    assert scene.inbox.list(FEED) == []
    scene.pushed(op("d"))
    assert scene.events("c") == ["b", "c", "d"]


@pytest.mark.parametrize("reads", [2, 3])
def test_who_joins_far_behind_is_cut(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """A turn has no time for more reads: the client resumes from the last cursor it got."""
    monkeypatch.setattr(limits, "READ_PAGES_BYTES_MAX", 1)
    monkeypatch.setattr(limits, "JOIN_READS_MAX", reads)
    scene.post_each(*"abc")
    scene.push()
    join(scene)

    assert scene.events("c") == list("abc")[:reads]
    assert cursor(scene, "c") == reads
    assert scene.sockets.closed == (["c"] if reads < 3 else [])
    assert bool(scene.subscriptions.all(FEED)) is (reads == 3)
    assert scene.inbox.list(FEED) == []


def test_the_missed_pages_are_filtered_too(scene: Scene) -> None:
    """The cursor moves past pages that do not match."""
    scene.post(op("a"), op("u", type="user"))
    scene.pushed(op("v", type="user"))
    join(scene, wanted=VIDEOS)

    assert scene.events("c") == ["a"]
    assert cursor(scene, "c") == 2


@pytest.mark.parametrize("state", [State.OPEN, State.CATCHING_UP, State.LIVE, State.LEAVING])
def test_a_change_that_came_too_late_joins_nobody(scene: Scene, state: State) -> None:
    """The connection has another state by then, or is gone."""
    change = joining(scene)
    scene.connections.open(replace(scene.connection("c"), state=state))
    scene.inbox.post(FEED, change)
    scene.inbox.post(FEED, Change("gone", True, EVERYTHING, 0, "t"))
    scene.push()

    assert scene.connection("c").state is state
    assert scene.subscriptions.all(FEED) == []
    assert scene.inbox.list(FEED) == []


def test_a_late_change_does_not_join_with_an_old_filter(scene: Scene) -> None:
    """The connection left and subscribed again: its current filter counts."""
    scene.post_each(*"abc")
    scene.push()
    joining(scene, wanted=VIDEOS, since=2)
    scene.inbox.post(FEED, Change("c", True, Filter(types=frozenset({"user"})), 0, "old"))
    scene.push()

    assert scene.events("c") == ["c"]
    assert [subscription.filter for subscription in scene.subscriptions.all(FEED)] == [VIDEOS]


def test_a_late_change_does_not_join_the_wrong_feed(scene: Scene) -> None:
    """It has subscribed to another feed since."""
    joining(scene)
    scene.inbox.post("other", Change("c", True, EVERYTHING, 0, "old"))
    scene.push("other")

    assert scene.subscriptions.all("other") == []
    assert scene.connection("c").state is State.JOINING


def test_a_late_change_does_not_end_a_new_subscription(scene: Scene) -> None:
    """The sweep posted the change before the connection left; it is live again since."""
    live(scene)
    scene.inbox.post(FEED, Change("c", False, EVERYTHING, 0, "old"))
    scene.pushed(op("a"))

    assert scene.events("c") == ["a"]
    assert scene.connection("c").state is State.LIVE


def test_leaving(scene: Scene) -> None:
    """The subscription is removed, the client is notified, and the connection is open as if new."""
    live(scene)
    left = scene.connection("c").with_fields(state=State.LEAVING)
    assert scene.connections.update(scene.connection("c"), left)
    scene.inbox.post(FEED, Change("c", False, EVERYTHING, 0, "t"))
    scene.pushed(op("a"))

    assert scene.heard("c") == [{"reply": "unsubscribed"}]
    assert scene.subscriptions.all(FEED) == []
    opened = scene.connection("c")
    assert (opened.state, opened.feed, opened.filter) == (State.OPEN, "", EVERYTHING)


def test_what_the_replay_serves_is_the_replays_to_let_go(scene: Scene) -> None:
    """A connection that leaves in the middle of its catch-up."""
    scene.connections.open(
        Connection("c", scene.now_ms, State.LEAVING, FEED, EVERYTHING, progress='{"page":1}')
    )
    scene.inbox.post(FEED, Change("c", False, EVERYTHING, 0, "t"))
    scene.push()

    assert scene.connection("c").state is State.LEAVING


def test_the_subscription_of_a_lost_connection_is_removed(scene: Scene) -> None:
    """The connection's item is gone, but the change has the filter of the subscription."""
    scene.subscriptions.add(FEED, Subscription("gone", VIDEOS, 0))
    scene.inbox.post(FEED, Change("gone", False, VIDEOS, 0, "t"))
    scene.push()

    assert scene.subscriptions.all(FEED) == []


def test_it_leaves_while_it_is_taken_up() -> None:
    """It leaves between the missed pages and the last write: it does not become live."""

    class Leaving(MemorySockets):
        def send(self, connection_id: str, frame: str) -> Outcome:
            old = scene.connection("c")
            scene.connections.update(old, old.with_fields(state=State.LEAVING))
            return super().send(connection_id, frame)

    scene = Scene(sockets=Leaving())
    scene.pushed(op("a"))
    join(scene)

    assert scene.connection("c").state is State.LEAVING
    assert scene.subscriptions.all(FEED) == []


def test_who_waited_too_long_is_cut(scene: Scene) -> None:
    """Its missing pages were trimmed: it reconnects and resumes from its cursor."""
    scene.post_each("a", "b")
    scene.push()
    trimmed(scene, 3)
    join(scene)

    assert scene.sockets.closed == ["c"]
    assert scene.subscriptions.all(FEED) == []


RARE = Filter(types=frozenset({"rare"}))


def test_idle_connections_hear_the_cursor_now_and_then(scene: Scene) -> None:
    """A rare filter then never falls out of the log; but a cursor is not sent with each page."""
    live(scene, wanted=RARE)
    for _ in range(4):
        scene.pushed(op("a"))
    assert scene.heard("c") == []

    page = later(scene)
    scene.push()
    assert scene.heard("c") == [{"events": [], "cursor": page.end.encode()}]


@pytest.mark.parametrize("periods", [0, 1])
def test_another_process_tells_the_cursor_only_where_it_is_time(scene: Scene, periods: int) -> None:
    """It sees by the page before its first one whether that is the first of its period."""
    live(scene, wanted=RARE)
    scene.pushed(op("a"))
    scene.pusher = scene.lane(0)
    page = later(scene, periods)
    scene.push()

    told = [{"events": [], "cursor": page.end.encode()}]
    assert scene.heard("c") == told[:periods]


def test_a_process_that_cannot_tell_when_it_was_time_last_tells_the_cursor(scene: Scene) -> None:
    """The page before its first one has left the log."""
    live(scene, wanted=RARE)
    scene.pushed(op("a"))
    scene.post(op("a"))
    scene.push()
    trimmed(scene, 3)
    scene.pusher = scene.lane(0)
    page = scene.pushed(op("a"))

    assert scene.heard("c") == [{"events": [], "cursor": page.end.encode()}]


def later(scene: Scene, periods: int = 1) -> Page:
    """Return the first page of a period in which idle connections get a cursor."""
    scene.now_ms += periods * limits.IDLE_CURSOR_MS
    return scene.post(op("a"))


def test_idle_connections_hear_the_cursor_a_few_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cursors are sent between pages, so that no page waits for all of them; each client gets
    one."""
    monkeypatch.setattr(limits, "IDLE_NOTIFIED_MAX", 2)
    names = [live(scene, f"c{number}", RARE) for number in range(7)]
    scene.pushed(op("a"))
    first = later(scene)
    scene.pusher.handle(FEED, [first])
    assert [name for name in names if scene.heard(name)] == []
    assert scene.pusher.prepare(FEED, 2)
    assert len([name for name in names if scene.heard(name)]) == 2
    second = scene.post(op("a"))
    scene.pusher.handle(FEED, [second])
    while scene.pusher.prepare(FEED, 3):
        pass

    told = [[each["cursor"] for each in scene.heard(name)] for name in names]
    assert sorted(told) == sorted([[first.end.encode()]] * 2 + [[second.end.encode()]] * 5)


def test_who_was_overtaken_tells_nobody_an_older_cursor(scene: Scene) -> None:
    """Another process of the lane has sent later pages."""
    live(scene, wanted=RARE)
    scene.pushed(op("a"))
    scene.pusher.handle(FEED, [later(scene)])

    assert not scene.pusher.prepare(FEED, 3)
    assert not scene.pusher.prepare(FEED, 2)
    assert scene.heard("c") == []


def test_who_leaves_before_it_is_told_the_cursor_is_not(scene: Scene) -> None:
    """Nothing follows the answer to its request."""
    live(scene, wanted=RARE)
    scene.pushed(op("a"))
    scene.pusher.handle(FEED, [later(scene)])
    scene.say("c", action="unsubscribe")
    scene.pusher.prepare(FEED, 2)

    assert [message for message in scene.heard("c")] == [{"reply": "unsubscribed"}]


def test_8_9_a_batch_is_packed_once_for_all_who_asked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.9: others get it in plain, and so does whoever was connected by an older release."""
    for name in ("old", "other"):
        live(scene, name)
    for name in ("a", "b", "c"):
        scene.connections.open(Connection(name, scene.now_ms, State.LIVE, FEED, encoding=GZIP))
        scene.subscriptions.add(FEED, Subscription(name, EVERYTHING, 0, encoding=GZIP))
    packed: list[bytes] = []
    compress = gzip.compress

    def counting(data: bytes, *given: Any, **named: Any) -> bytes:
        packed.append(data)
        return compress(data, *given, **named)

    monkeypatch.setattr(gzip, "compress", counting)
    scene.pushed(*(op(f"x{number}") for number in range(100)))

    sent = scene.sockets.sent
    assert len(packed) == 1
    assert sent["a"] == sent["b"] == sent["c"] and sent["old"] == sent["other"]
    assert sent["old"] == [packed[0].decode()] == [unpacked(text) for text in sent["a"]]
    assert len(sent["a"][0]) * 4 < len(sent["old"][0])


def test_8_9_what_is_missed_before_a_join_is_packed_too(scene: Scene) -> None:
    """P8.9: later messages of the live connection are packed as well."""
    batch = [op(f"x{number}") for number in range(100)]
    scene.pushed(*batch)
    change = joining(scene)
    asked = replace(scene.connection("c"), encoding=GZIP)
    assert scene.connections.update(scene.connection("c"), asked)
    scene.inbox.post(FEED, change)
    scene.pushed(*batch)

    assert len(scene.events("c")) == 200
    assert not any(text.startswith("{") for text in scene.sockets.sent["c"])
    assert [subscription.encoding for subscription in scene.subscriptions.all(FEED)] == [GZIP]


def test_nobody_is_told_a_cursor_before_its_own(scene: Scene) -> None:
    """A subscription that begins after these pages has a later cursor."""
    live(scene, since=7)
    scene.pushed(op("a"))

    assert scene.heard("c") == []


def test_many_operations_travel_together(scene: Scene) -> None:
    """They are sent in few messages within the size limit; only the last one has the cursor."""
    live(scene)
    scene.pushed(*(op(f"x{number}", data="x" * 1000) for number in range(500)))

    assert scene.events("c") == [f"x{number}" for number in range(500)]
    messages = scene.sockets.sent["c"]
    assert len(messages) == 5
    assert all(len(message) <= limits.FRAME_BYTES_MAX for message in messages)
    assert ["cursor" in json.loads(message) for message in messages] == [False] * 4 + [True]


def test_O32_refs_for_live_connections_and_joining_ones(scene: Scene) -> None:
    """Pushed and missed operations have refs, made with the template at the time of sending."""
    scene.pushed(op("a"))
    scene.profiles.save(FEED, Profile(object_url="/{{type}}s/{{id}}"))
    scene.inbox.post(FEED, joining(scene, "j"))
    live(scene)
    scene.pushed(op("b"))

    assert refs(scene, "j") == ["/videos/a", "/videos/b"]
    assert refs(scene, "c") == ["/videos/b"]


def refs(scene: Scene, name: str) -> list[str]:
    return [event["data"]["ref"] for event in sent_events(scene, name)]


def test_who_is_connected_to_a_chained_feed_that_lost_pages_comes_back(scene: Scene) -> None:
    """No page is skipped: each client resumes from its cursor; the push continues after the
    copy."""
    scene.pusher.chained = {FEED}
    live(scene)
    live(scene, "listener", Filter(kinds=frozenset({("video", "a")})))
    for _ in range(4):
        scene.post(op())
    trimmed(scene, 4)

    scene.push()
    assert sorted(scene.sockets.closed) == ["c", "listener"]
    assert scene.sockets.sent["c"] == []
    live(scene, "d", since=4)
    scene.pushed(op("z"))
    assert scene.events("d") == ["z"]


def test_where_producers_post_a_push_that_lost_pages_stands_still(scene: Scene) -> None:
    """Retention waits for the push, so a gap is an error; no connection is closed for it."""
    live(scene)
    scene.post(op())
    trimmed(scene, 2)

    with pytest.raises(FellOff):
        scene.push()
    assert scene.sockets.closed == []


def test_many_joins_are_taken_up_turn_by_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They join in one run, and each client gets the pages of that time once."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 2)
    scene.post(op("a"))
    for at in range(5):
        scene.inbox.post(FEED, joining(scene, f"c{at}"))
    scene.push()

    assert scene.inbox.list(FEED) == []
    for at in range(5):
        assert scene.events(f"c{at}") == ["a"]
        assert scene.connection(f"c{at}").state is State.LIVE


def test_a_turn_takes_up_no_more_than_it_has_time_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns True while changes are left."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 2)
    for at in range(3):
        scene.inbox.post(FEED, joining(scene, f"c{at}"))

    assert scene.pusher.prepare(FEED, 0)
    assert len(scene.inbox.list(FEED)) == 1
    assert not scene.pusher.prepare(FEED, 0)


def test_a_turn_sends_no_more_than_it_has_time_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer pages then, one at least; a run brings all of them, in order."""
    monkeypatch.setattr(limits, "DELIVERIES_MAX", 2)
    for name in ("c", "d"):
        live(scene, name, EVERYTHING)
    scene.post_each(*"abcd")
    pages = scene.reader.read(FEED, 0).pages

    assert scene.pusher.handle(FEED, pages) == 1
    scene.pusher.handle(FEED, pages[1:2])
    assert scene.events("c") == scene.events("d") == ["a", "b"]
    scene.push()
    assert scene.events("c")[2:] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("trouble", ["gone", "busy", "unknown", "refused"])
def test_one_clients_trouble_is_not_that_of_others(scene: Scene, trouble: str) -> None:
    """The connection is closed, with its subscription; the others get everything in order."""
    for name in ("a", "b", "c"):
        live(scene, name)
    getattr(scene.sockets, trouble).add("b")

    for name in ("1", "2"):
        scene.pushed(op(name))

    assert scene.events("a") == scene.events("c") == ["1", "2"]
    assert scene.connections.get("b") is None
    assert [each.connection_id for each in scene.subscriptions.all(FEED)] == ["a", "c"]


TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"
TRACE_OPTIONS: list[dict[str, Any]] = [{"trace": True}, {"trace": False}, {}]
ERASURE = f'{line("x1", "delete", parents=["p"])[:-1]},"data":{{"reason":"r"}}{ERASURE_MARK}'
ERASURE_OPTIONS: list[dict[str, Any]] = [
    {"erasures": True},
    {"erasures": False},
    {},
    {"parents": ["p"]},
]
FULL, SHORT = ("erase", {"reason": "r"}), ("delete", None)


def append(scene: Scene, name: str, trace: str = TRACE) -> None:
    lines = [line_from(op(name, parents=["p"]), now_ms=scene.now_ms)]
    scene.appender.append(FEED, lines, trace=trace)


def connect(scene: Scene, options: Sequence[dict[str, Any]], **fields: Any) -> list[str]:
    """Open a connection for each of *options*; forget what they are answered."""
    for at, asked in enumerate(options):
        scene.connect(f"c{at}")
        scene.say(f"c{at}", action="resume", **fields, **asked)
        scene.sockets.sent[f"c{at}"].clear()
    return [f"c{at}" for at in range(len(options))]


def replay(scene: Scene, names: Sequence[str], post: Callable[[], object]) -> None:
    """Replay these connections. Then call *post*, and push what it posts before they join."""
    for name in names:
        scene.replayer.run(name)
    changes = scene.inbox.list(FEED)
    for change in changes:
        scene.inbox.done(FEED, change)
    post()
    scene.push()
    for change in changes:
        scene.inbox.post(FEED, change)
    scene.push()


def sent_events(scene: Scene, connection_id: str) -> list[dict[str, Any]]:
    return [event for message in scene.heard(connection_id) for event in message.get("events", ())]


def traces(scene: Scene, connection_id: str) -> list[str | None]:
    return [event.get("traceparent") for event in sent_events(scene, connection_id)]


def erasures(scene: Scene, connection_id: str) -> list[tuple[str, object]]:
    return [(each["event"], each["data"].get("data")) for each in sent_events(scene, connection_id)]


def test_6_9_of_what_is_pushed(scene: Scene) -> None:
    """P6.9: the same events, with and without; those of a page without one have none."""
    names = connect(scene, TRACE_OPTIONS, cursor="now")
    scene.push()
    append(scene, "a")
    append(scene, "b", trace="")
    scene.push()

    assert [traces(scene, name) for name in names] == [[TRACE, None], [None] * 2, [None] * 2]
    kept = [subscription.options.trace for subscription in scene.subscriptions.all(FEED)]
    assert kept == [True, False, False]


def test_6_9_of_a_page_without_traces_one_message_is_made(scene: Scene) -> None:
    """P6.9: without traces all clients get the same message."""
    names = connect(scene, TRACE_OPTIONS, cursor="now")
    scene.push()
    append(scene, "b", trace="")
    scene.push()
    assert len({scene.sockets.sent[name][-1] for name in names}) == 1
    assert len({id(scene.sockets.sent[name][-1]) for name in names}) == 1


def test_6_9_of_a_catch_up_and_what_lies_behind_it(scene: Scene) -> None:
    """P6.9: the replay's messages, and those of push before a connection is live."""
    append(scene, "a")
    names = connect(scene, TRACE_OPTIONS, cursor=START.encode())
    replay(scene, names, lambda: append(scene, "b"))

    assert [traces(scene, name) for name in names] == [[TRACE] * 2, [None] * 2, [None] * 2]


def test_6_9_a_leave_has_its_trace_too(scene: Scene) -> None:
    """P6.9: this does not hold if only the object that left may be named."""
    scene.keep_removed_parents()
    append(scene, "a")
    scene.project()
    names = connect(scene, TRACE_OPTIONS, cursor="now", parents=["p"], leave=True)
    scene.push()
    line = line_from(op("a", parents=[]), now_ms=scene.now_ms)
    scene.appender.append(FEED, [line], trace=TRACE)
    scene.project()
    scene.push()

    assert [traces(scene, name) for name in names] == [[TRACE], [None], [None]]


def test_22_4_pushed(scene: Scene) -> None:
    """P22.4: each client receives one event, in the place of the log."""
    names = connect(scene, ERASURE_OPTIONS, cursor="now")
    scene.push()
    scene.appender.append(FEED, [ERASURE, line("b", parents=["p"])])
    scene.push()
    for name, event in zip(names, (FULL, SHORT, SHORT, SHORT), strict=True):
        assert erasures(scene, name) == [event, ("update", None)]


def test_22_4_replayed_and_missed_before_push(scene: Scene) -> None:
    """P22.4: a catch-up and the pages that a hand-over missed are sent the same way."""
    scene.appender.append(FEED, [ERASURE])
    names = connect(scene, ERASURE_OPTIONS, cursor=START.encode())
    replay(scene, names, lambda: scene.appender.append(FEED, [ERASURE]))
    for name, event in zip(names, (FULL, SHORT, SHORT, SHORT), strict=True):
        assert erasures(scene, name) == [event, event]


def test_22_4_a_wrong_switch_is_refused(scene: Scene) -> None:
    scene.connect("c")
    scene.say("c", action="subscribe", erasures="true")
    (answer,) = map(json.loads, scene.sockets.sent["c"])
    assert (answer["error"]["code"], answer["error"]["field"]) == ("invalid_message", "erasures")
