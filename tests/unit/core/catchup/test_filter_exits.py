"""Leaves: a client that asked for them gets one for each parent that loses an object, on every
transport.
"""

from __future__ import annotations

import pytest

from tests.unit.core.following import caught_up, follow, names, trimmed
from tests.unit.core.scene import FEED, Scene, op
from tidings.core import limits
from tidings.core.errors import InvalidFilter, LeaveNotKept
from tidings.core.model import filters
from tidings.core.model.cursors import START
from tidings.core.model.filters import ALL_KEY, LEAVERS, Filter
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.session import State

ANN = "user/ann"
LEAVING = filters.parse(None, ANN, "true")
APPEAR = ["insert x", "insert y"]


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.keep_removed_parents()
    return made


def moving(scene: Scene) -> None:
    """Post operations: x comes to ann, goes to bob, changes there; y stays with ann; z was never
    with her.
    """
    scene.post(op("x", "insert", parents=[ANN]), op("y", "insert", parents=[ANN]))
    scene.project()
    scene.post(op("x", parents=["user/bob"]), op("z", parents=["user/bob"]))
    scene.post(op("x", parents=["user/bob"]), op("y", parents=[ANN, "user/bob"]))


def sent(scene: Scene, connection_id: str) -> list[str]:
    """Return `update x`, ... as they were sent to the connection."""
    return [
        f"{event['event']} {event['data']['id']}"
        for message in scene.heard(connection_id)
        for event in message.get("events", [])
        if "data" in event
    ]


def subscribed(scene: Scene, name: str = "c") -> None:
    """Open a live connection that subscribes to ann's objects with leaves."""
    scene.subscribe(name, parents=[ANN], leave=True)
    scene.push()
    assert scene.connection(name).state is State.LIVE


READS = [
    ("without the switch", START.encode(), filters.parse(None, ANN), [*APPEAR, "update y"]),
    ("another type", START.encode(), filters.parse("user", ANN, "true"), []),
    ("behind a leave", "{second}000000", LEAVING, ["update y"]),
    ("a full copy", "0", LEAVING, ["reset", "insert y", "live"]),
]


class TestLog:
    @pytest.mark.parametrize(
        ("name", "cursor", "wanted", "expected"), READS, ids=[row[0] for row in READS]
    )
    def test_who_is_told_of_no_leave(
        self, scene: Scene, name: str, cursor: str, wanted: Filter, expected: list[str]
    ) -> None:
        """Clients without `leave`, with types that never matched, or that have the leave already,
        or start over.
        """
        moving(scene)
        scene.project()
        cursor = cursor.format(second=scene.log.read(FEED, 1)[0].id_prefix)

        assert names(caught_up(scene, cursor, wanted)) == expected

    def test_what_goes_elsewhere_is_told_once(self, scene: Scene) -> None:
        """It is sent as a leave, with the id and the data of the operation that removed the
        parent."""
        moving(scene)
        scene.project()
        events = caught_up(scene, START.encode(), LEAVING)

        assert names(events) == [*APPEAR, "leave x", "update y"]
        assert events[2].id == scene.log.read(FEED, 1)[0].id_prefix + "000000"
        assert '"parents":["user/bob"]' in events[2].data

    def test_nothing_is_read_before_it_is_settled(self, scene: Scene) -> None:
        """Such a catch-up ends at the checkpoint of the follower `state`."""
        moving(scene)
        began = scene.catch_up.start(FEED, START)
        events, progress = follow(scene, began, LEAVING)
        assert names(events) == APPEAR

        scene.project()
        assert names(follow(scene, progress, LEAVING)[0]) == ["leave x", "update y"]

    def test_the_rest_of_a_page_does_not_wait(self, scene: Scene) -> None:
        """The cursor is the page's first operation, as its poster has it; objects that may have
        left get a leave.
        """
        moving(scene)
        (page,) = scene.log.read(FEED, 1, 1)

        assert names(caught_up(scene, page.id_prefix + "000000", LEAVING)) == ["leave z"]

    def test_where_it_is_unknown_everything_else_may_have_left(self) -> None:
        """For pages from before removed parents were stored, each operation that does not match is
        a leave.
        """
        scene = Scene()
        moving(scene)
        scene.project()
        events = caught_up(scene, START.encode(), LEAVING)

        assert names(events) == [*APPEAR, "leave x", "leave z", "leave x", "update y"]


class TestCopy:
    def test_a_copy_of_what_changed_tells_all_that_does_not_match(self, scene: Scene) -> None:
        """The state does not know who left whom: x did, z did not, deleted ones may have."""
        moving(scene)
        scene.post(op("d", "delete", parents=["user/bob"]))
        scene.project()
        lost = scene.log.read(FEED, 0, 1)[0].end.encode()
        trimmed(scene, 4)

        events = names(caught_up(scene, lost, LEAVING))
        assert sorted(events[:-1]) == ["insert y", "leave d", "leave x", "leave z"]
        assert names(caught_up(scene, lost, filters.parse(None, ANN))) == ["insert y", "live"]


class TestPush:
    def test_it_waits_until_removed_parents_are_known(self, scene: Scene) -> None:
        """The push is woken when they are; nothing is sent twice."""
        subscribed(scene)
        moving(scene)
        assert scene.push() == 1
        assert sent(scene, "c") == APPEAR

        scene.waker.woken.clear()
        scene.project()
        assert scene.waker.woken == [(FEED, "push")]
        assert scene.push() == 2
        assert sent(scene, "c") == [*APPEAR, "leave x", "update y"]

    def test_without_such_subscriptions_it_waits_for_nobody(self, scene: Scene) -> None:
        """The setting alone delays nothing."""
        scene.subscribe(parents=[ANN])
        scene.push()
        moving(scene)

        assert scene.push() == 3
        assert sent(scene, "c") == [*APPEAR, "update y"]

    def test_who_matches_is_told_the_operation_and_who_does_not_the_leave(
        self, scene: Scene
    ) -> None:
        """Each connection gets an operation once, either as the operation or as a leave."""
        subscribed(scene, "ann")
        scene.subscribe("bob", parents=["user/bob", ANN], leave=True)
        scene.push()
        moving(scene)
        scene.project()
        scene.push()

        assert sent(scene, "ann") == [*APPEAR, "leave x", "update y"]
        assert sent(scene, "bob") == [*APPEAR, "update x", "update z", "update x", "update y"]

    def test_a_join_waits_for_what_lies_before_it(self, scene: Scene) -> None:
        """The push is ahead of the state: the connection joins when the state has caught up."""
        moving(scene)
        scene.push()
        scene.subscribe(parents=[ANN], leave=True, **{"from": "0"})
        scene.replayer.run("c")
        scene.push()
        assert scene.connection("c").state is State.JOINING

        scene.project()
        scene.push()
        assert scene.connection("c").state is State.LIVE
        assert sent(scene, "c")[-2:] == ["leave x", "update y"]

    def test_a_join_within_a_page_loses_nothing_of_its_rest(self, scene: Scene) -> None:
        """The page may be settled after the replay has handed over."""
        scene.post(op("x", "insert", parents=[ANN]), op("y", "insert", parents=[ANN]))
        scene.project()
        scene.post(op("x"), op("y"))
        (page,) = scene.log.read(FEED, 1, 1)
        scene.resume(page.id_prefix + "000000", parents=[ANN], leave=True)
        scene.project()
        scene.push()

        assert scene.connection("c").state is State.LIVE
        assert sent(scene, "c") == ["leave y"]

    def test_when_it_is_turned_off_those_who_listen_are_told_to_be_sure(self, scene: Scene) -> None:
        """Nothing is waited for any more, and each operation that does not match is sent as a
        leave."""
        subscribed(scene)
        scene.keep_removed_parents(leave=False)
        moving(scene)

        assert scene.push() == 3
        assert sent(scene, "c") == [*APPEAR, "leave x", "leave z", "leave x", "update y"]

    def test_what_no_subscription_selects_is_not_sent(self, scene: Scene) -> None:
        """The sentinel subscription only shows that a client asked for leaves; idle connections
        still get a cursor at intervals.
        """
        subscribed(scene)
        scene.post(op("a"))
        scene.project()
        scene.push()

        assert [
            subscription.filter for subscription in scene.subscriptions.find(FEED, ALL_KEY)
        ] == [LEAVERS]
        assert set(scene.sockets.sent) == {"c"}
        assert "cursor" in scene.heard("c")[-1]

    def test_when_the_last_is_gone_nobody_is_waited_for(self, scene: Scene) -> None:
        """The push notices it when it sends idle connections their cursor, and waits while one is
        left.
        """
        for name in ("one", "two"):
            subscribed(scene, name)
        scene.sockets.gone.add("one")
        for gone, settled in (("one", 0), ("two", 0), ("", 1)):
            scene.sockets.gone.add(gone)
            scene.now_ms += limits.IDLE_CURSOR_MS
            scene.post(op("x", parents=[ANN]))
            assert scene.push() == settled
            scene.project()
            scene.push()
            scene.now_ms += limits.IDLE_CURSOR_MS
            scene.post(op("y"))
            scene.project()
            scene.push()

        assert list(scene.subscriptions.all(FEED)) == []

    def test_a_connection_that_is_gone_leaves_no_subscription(self, scene: Scene) -> None:
        """Found by its filter, as any other."""
        subscribed(scene)
        scene.sockets.gone.add("c")
        moving(scene)
        scene.project()
        scene.push()

        assert scene.sockets.send("c", "") is Outcome.GONE
        assert list(scene.subscriptions.find(FEED, f"p/{ANN}")) == []


class TestAsking:
    @pytest.mark.parametrize(
        ("leave", "wanted"), [(None, False), ("", False), ("false", False), ("true", True)]
    )
    def test_the_switch(self, leave: str | None, wanted: bool) -> None:
        """It is off by default, and `true` turns it on."""
        assert filters.parse("video", ANN, leave).leave is wanted

    @pytest.mark.parametrize("leave", ["1", "True", "yes", "true,false"])
    def test_anything_else_is_refused(self, leave: str) -> None:
        """A consumer that expects leaves must get them."""
        with pytest.raises(InvalidFilter, match="leave: must be true or false"):
            filters.parse(None, ANN, leave)

    @pytest.mark.parametrize("parents", [None, "", ","])
    def test_without_parents_there_is_nothing_to_leave(self, parents: str | None) -> None:
        """A type names the object; it never loses it."""
        assert filters.parse("video", parents, "true") == filters.parse("video", parents)

    def test_a_feed_that_keeps_none_refuses(self) -> None:
        """The error has the command that turns it on, on a stream and on a socket."""
        scene = Scene()
        scene.subscribe(parents=[ANN], leave=True)

        with pytest.raises(LeaveNotKept) as refused:
            scene.streamer.open(FEED, "now", {"parents": ANN, "leave": "true"})

        assert refused.value.status == 400
        assert "`tidings feed set --feed main --leave on`" in refused.value.rule
        assert scene.heard("c")[-1]["error"] == refused.value.body()
        assert scene.connection("c").state is State.OPEN
        scene.streamer.open(FEED, "now", {"types": "video", "leave": "true"})

    def test_on_a_socket_it_is_true_or_false(self, scene: Scene) -> None:
        """JSON's, not words."""
        scene.subscribe(parents=[ANN], leave="true")
        assert scene.heard("c")[-1]["error"]["code"] == "invalid_message"

        scene.say("c", action="subscribe", parents=[ANN], leave=False)
        assert scene.connection("c").filter == Filter(parents=frozenset({ANN}))
