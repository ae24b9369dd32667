"""Bounded keys: the answers within the bound, and when a connection with a key is closed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.core.following import caught_up, names
from tests.unit.core.scene import FEED, Scene, op, shown
from tidings.core.auth.guard import READ, Allowed, Role
from tidings.core.auth.keys import PresentedKey
from tidings.core.catchup.sse import Chunk
from tidings.core.changeagent.list import Query
from tidings.core.errors import OutsideKey, UnknownChange
from tidings.core.ingest.ingest import PostRequest
from tidings.core.model.cursors import START
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING, Filter, parse, within
from tidings.core.model.json_body import JSON_TYPE
from tidings.core.settings.values import Resource
from tidings.core.triton.objects import ObjectReader

ANN, BOB = "user/ann", "user/bob"
ANNS = Filter(parents=frozenset({ANN}))


def two(scene: Scene) -> None:
    """Post one object of ann's and one of bob's."""
    scene.post(op("a", "insert", parents=[ANN]), op("b", "insert", parents=[BOB]))


def subscribed(scene: Scene, given: PresentedKey, name: str = "c", **message: Any) -> str:
    scene.subscribe(name, password=given.encode(), **message)
    scene.push()
    return name


def streamed(scene: Scene, given: PresentedKey, cursor: str, **query: str | None) -> list[Event]:
    """Return the events of a stream up to its end, whether it copies the state or reads the log."""
    stream, chunks = scene.streamer.open(FEED, cursor, query, shown(given)), list[Chunk]()
    while not chunks or not chunks[-1].at_frontier:
        chunks.append(stream.next())
    return [event for chunk in chunks for part in chunk.parts for event in part.events()]


class TestNarrowing:
    @pytest.mark.parametrize(
        ("wanted", "types", "parents"),
        [
            (EVERYTHING, None, {ANN}),
            (parse("video", None), {"video"}, {ANN}),
            (parse(None, f"{ANN},{BOB}"), None, {ANN}),
            (parse(None, BOB), None, set()),
        ],
    )
    def test_what_both_name_is_left(
        self, wanted: Filter, types: set[str] | None, parents: set[str] | None
    ) -> None:
        """A filter and a bound with nothing in common leave nothing."""
        narrowed = Allowed(ANNS).narrow(wanted)
        assert (narrowed.types, narrowed.parents) == (types, parents)

    def test_a_password_narrows_nothing(self) -> None:
        """Leaves are not narrowed either."""
        wanted = parse(None, ANN, "true")
        assert Allowed().narrow(wanted, leave=True) is wanted

    def test_leaves_of_the_bound_are_redacted(self) -> None:
        """Leaves within a bound by type are not redacted: such a key may see where objects of the
        type go.
        """
        assert within(EVERYTHING, ANNS, leave=True) == replace(ANNS, leave=True, redacted=True)
        by_type = within(parse(None, ANN, "true"), Filter(frozenset({"video"})))
        assert by_type.leave and not by_type.redacted


class TestReading:
    def test_a_stream_tells_what_is_within(self, scene: Scene) -> None:
        """This holds for the log and for a copy, whatever filter the client sends."""
        given = scene.key(bound=ANNS)
        two(scene)
        scene.project()
        for parents in (None, f"{ANN},{BOB}"):
            log = streamed(scene, given, START.encode(), parents=parents)
            assert names(log) == ["insert a"]
            copy = streamed(scene, given, "0", parents=parents)
            assert names(copy) == ["reset", "insert a", "live"]

    def test_a_socket_tells_what_is_within(self, scene: Scene) -> None:
        """Pushed, and replayed."""
        given = scene.key(bound=ANNS)
        two(scene)
        live = subscribed(scene, given)
        scene.resume(START.encode(), "r", password=given.encode())
        two(scene)
        scene.push()
        assert scene.events(live) == ["a"] and scene.events("r") == ["a", "a"]

    def test_changes_are_listed_within(self, scene: Scene) -> None:
        """Entries outside the bound look missing, but `next` still skips them."""
        two(scene)
        lister = scene.lister()
        listing = lister.list(FEED, Query(bound=ANNS))
        entries = [json.loads(each) for each in listing.entries]
        assert [each["data"]["id"] for each in entries] == ["a"]
        assert listing.next > entries[0]["_id"]
        outside = entries[0]["_id"] + 1
        assert json.loads(lister.one(FEED, outside))["data"]["id"] == "b"
        with pytest.raises(UnknownChange):
            lister.one(FEED, outside, ANNS)

    def test_objects_are_told_within(self, scene: Scene) -> None:
        """Page by page, and one by one."""
        given = scene.key(bound=ANNS)
        two(scene)
        scene.project()
        objects = ObjectReader(scene.state)
        allowed = READ.admit(scene.guard, FEED, shown(given))
        page = objects.page(FEED, "", "", allowed)
        assert [json.loads(each)["id"] for each in page.objects] == ["a"]
        for name, count in (("a", 1), ("b", 0)):
            assert len(objects.one(FEED, "video", name, allowed).objects) == count

    def test_a_listener_hears_of_the_whole_feed_or_nothing(self, scene: Scene) -> None:
        """The items name no parents, so a bounded key cannot register a listener, and the error
        says why.
        """
        given = scene.key(bound=ANNS)
        standing = scene.profiles.profile(FEED)
        declared = (Resource("vm", ("nic",), "/vms"),)
        assert scene.profiles.save(FEED, replace(standing, resources=declared, max_age_s=3600))
        scene.connect("c")
        kind = {"resource": "vm", "subResources": ["nic"]}
        scene.say("c", instance="i", changeKind=kind, password=given.encode())
        assert scene.sockets.sent["c"] == [
            "key: is bounded to a part of the feed, and this request needs all of it"
        ]
        assert scene.connections.get("c") is None


class TestPosting:
    def test_all_of_a_request_must_be_within(self, scene: Scene) -> None:
        """Otherwise nothing is written, and the error names the first operation outside."""
        given = scene.key(Role.INGEST, bound=ANNS)
        body = [op("a", parents=[ANN, BOB]), op("b", parents=[BOB]), op("c")]
        request = PostRequest(FEED, json.dumps(body).encode(), JSON_TYPE, credential=shown(given))
        with pytest.raises(OutsideKey, match=r"operations\[1\]"):
            scene.ingester.accept(request)
        assert scene.log.head(FEED) == 0
        within_bound = request._replace(body=json.dumps(body[:1]).encode())
        assert len(scene.ingester.accept(within_bound)) == 1


class TestLeaving:
    @pytest.fixture
    def kept(self, scene: Scene) -> Scene:
        """Set up an object x of ann's that then goes to bob."""
        scene.keep_removed_parents()
        scene.post(op("x", "insert", parents=[ANN]))
        scene.project()
        return scene

    @staticmethod
    def _goes(scene: Scene) -> None:
        scene.post(op("x", parents=[BOB], data="bob's"), op("y", parents=[BOB]))
        scene.project()

    def test_it_is_told_which_object_it_was(self, kept: Scene) -> None:
        """The leave has nothing else, as the operation is outside the bound, and comes only with
        `leave`.
        """
        given = kept.key(bound=ANNS)
        name = subscribed(kept, given, leave=True)
        self._goes(kept)
        kept.push()
        (leave,) = [event for each in kept.heard(name) for event in each.get("events", ())]
        assert (leave["event"], leave["data"]) == ("leave", {"type": "video", "id": "x"})
        events = streamed(kept, given, START.encode(), leave="true")
        assert names(events) == ["insert x", "leave x"]
        assert "bob" not in events[-1].data

    def test_who_may_see_it_is_told_all_of_it(self, kept: Scene) -> None:
        """In the same turn, by a message of its own."""
        bounded = subscribed(kept, kept.key(bound=ANNS), leave=True)
        free = subscribed(kept, kept.key(), "f", leave=True, parents=[ANN])
        self._goes(kept)
        kept.push()
        data = {name: kept.heard(name)[-1]["events"][-1]["data"] for name in (bounded, free)}
        assert data[bounded] == {"type": "video", "id": "x"}
        assert data[free]["data"] == "bob's"

    def test_what_is_not_known_is_not_told(self, kept: Scene) -> None:
        """Otherwise the key would show the ids of objects outside its bound. Section 6.6 is for
        keys without a bound.
        """
        given = kept.key(bound=ANNS)
        self._goes(kept)
        kept.removed_parents.__init__()  # type: ignore[misc]
        assert names(streamed(kept, given, START.encode(), leave="true")) == ["insert x"]

    def test_who_was_away_for_too_long_gets_everything_anew(self, kept: Scene) -> None:
        """The state does not know which objects left, so all that the copy lacks are gone."""
        self._goes(kept)
        wanted = within(EVERYTHING, ANNS, leave=True)
        other = f"{kept.now_ms // 1000 + 1:08x}{1:010x}7fffff"  # the id of another log: a time
        assert names(caught_up(kept, other, wanted)) == ["reset", "live"]
        assert names(caught_up(kept, other, ANNS)) == ["live"]


class TestEnding:
    def test_push_lets_go_who_has_a_revoked_key(self, scene: Scene) -> None:
        """Idle and busy connections are closed before anything more is sent; those of other keys
        stay."""
        bad, good = scene.key(), scene.key()
        loud = subscribed(scene, bad)
        idle = subscribed(scene, bad, "i", types=["nothing"])
        other = subscribed(scene, good, "o")
        scene.issuer.revoke(FEED, bad.id)
        two(scene)
        scene.push()
        for name in (loud, idle):
            error = scene.heard(name)[-1]["error"]
            assert (error["code"], error["field"]) == ("key_ended", "key")
            assert scene.connections.get(name) is None and name in scene.sockets.closed
        assert scene.events(loud) == [] and scene.events(other) == ["a", "b"]

    def test_everybody_is_looked_at_once_after_an_ending(self, scene: Scene) -> None:
        """After that only connections that are about to receive an event are checked."""
        scene.issuer.revoke(FEED, scene.key().id)
        reads: list[str] = []
        everybody = scene.subscriptions.all

        def counted(lane: str) -> Any:
            reads.append(lane)
            return everybody(lane)

        scene.subscriptions.all = counted  # type: ignore[method-assign]
        scene.subscriptions.all_if_at_most = lambda lane, at_most: None  # type: ignore[method-assign]
        for _ in range(3):
            scene.post(op())
            scene.push()
            reads_after_first = len(reads)
        assert reads_after_first <= 2  # one of them sends idle connections their cursor

    def test_push_tells_nothing_that_was_committed_after_a_key_ran_out(self, scene: Scene) -> None:
        """The commit time of the page decides, not the clock."""
        name = subscribed(scene, scene.key(expires_ms=scene.now_ms + 1000))
        two(scene)
        scene.push()
        scene.now_ms += 1000
        two(scene)
        scene.push()
        assert scene.events(name) == ["a", "b"] and scene.connections.get(name) is None

    def test_a_replay_ends_between_two_steps(self, scene: Scene) -> None:
        """It asks before each."""
        two(scene)
        given = scene.key()
        scene.say(
            scene.connect("r"), action="resume", cursor=START.encode(), password=given.encode()
        )
        scene.issuer.revoke(FEED, given.id)
        scene.replayer.run("r")
        assert scene.heard("r")[-1]["error"]["code"] == "key_ended" and scene.events("r") == []

    def test_a_replay_asks_behind_what_it_read(self, scene: Scene) -> None:
        """A read may take long: nothing of it is sent if the key was revoked during it."""
        two(scene)
        given = scene.key()
        scene.say(
            scene.connect("r"), action="resume", cursor=START.encode(), password=given.encode()
        )
        read = scene.log.read

        def revoked_meanwhile(*args: Any, **named: Any) -> Any:
            scene.issuer.revoke(FEED, given.id)
            return read(*args, **named)

        scene.log.read = revoked_meanwhile  # type: ignore[method-assign]
        scene.replayer.run("r")
        assert scene.heard("r")[-1]["error"]["code"] == "key_ended" and scene.events("r") == []

    def test_who_is_on_its_way_to_push_is_met_there(self, scene: Scene) -> None:
        """The replay may have handed it over before the key ended."""
        given = scene.key()
        scene.subscribe(password=given.encode())
        scene.issuer.revoke(FEED, given.id)
        scene.push()
        assert scene.heard("c")[-1]["error"]["code"] == "key_ended"

    def test_the_sweep_lets_go_who_is_idle(self, scene: Scene) -> None:
        """The feed does not move, so no push would check its connections."""
        bad, old = scene.key(), scene.key(expires_ms=scene.now_ms + 1000)
        names_ = [subscribed(scene, bad), subscribed(scene, old, "o")]
        kept = subscribed(scene, scene.key(), "k")
        scene.issuer.revoke(FEED, bad.id)
        scene.now_ms += 1000
        scene.sweeper.run()
        assert [scene.connections.get(name) for name in names_] == [None, None]
        assert scene.connections.get(kept) is not None

    def test_a_stream_knows_when_it_has_ended(self, scene: Scene) -> None:
        """By its key, its time, or the first key, which closes the feed to others."""
        uncredentialed = scene.streamer.open(FEED, "", given=None)
        bad = scene.key()
        old = scene.key(expires_ms=scene.now_ms + 1000)
        credentials = [shown(bad), shown(old)]
        streams = [scene.streamer.open(FEED, "", given=each) for each in credentials]
        assert [each.has_ended() for each in [*streams, uncredentialed]] == [False, False, True]
        scene.issuer.revoke(FEED, bad.id)
        scene.now_ms += 1000
        assert [each.has_ended() for each in streams] == [True, True]

    def test_who_unsubscribes_leaves_the_admission_behind(self, scene: Scene) -> None:
        """Only the subscription's admission ends; the connection may present another key."""
        name = subscribed(scene, scene.key())
        assert scene.connection(name).admission.key
        scene.say(name, action="unsubscribe")
        scene.push()
        assert not scene.connection(name).admission.may_end


def test_a_rate_says_when_to_come_back(scene: Scene) -> None:
    """To who subscribes too, in an error that leaves the connection open."""
    given = scene.key(rate=1)
    scene.subscribe(password=given.encode())
    scene.say("c", action="subscribe", password=given.encode())
    assert scene.heard("c")[-1]["error"]["code"] == "too_many_requests"
    assert scene.connections.get("c") is not None
