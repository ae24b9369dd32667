"""Registering: the order of its steps, and what becomes of them when one fails."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.auth.passwords import hash_password
from tidings.core.errors import InvalidSetting, Unavailable
from tidings.core.settings.profiles import validate
from tidings.core.settings.values import Resource
from tidings.core.triton.registration import Listener
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

VM = Resource("vm", ("nic", "alias"), "/vms")
REGISTRATION = {
    "instance": "i1",
    "service": "tcns",
    "changeKind": {"resource": "vm", "subResources": ["nic"]},
}
SAID = {"resource": "vm", "subResources": ["nic", "alias"], "bootstrapRoute": "/vms"}


def vm(name: str = "x1", *subs: str) -> dict[str, object]:
    return op(name, type="vm", changed=list(subs or ("nic",)))


@pytest.fixture
def declared(scene: Scene) -> Scene:
    scene.configure(resources=(VM,), max_age_s=3600)
    return scene


def listen(scene: Scene, name: str = "c", instance: str = "i1") -> None:
    scene.connections.open(Connection(name, scene.now_ms, listener=Listener(1, FEED)))
    scene.say(name, **{**REGISTRATION, "instance": instance})


def items(scene: Scene, name: str = "c") -> list[str]:
    return [each["changedResourceId"] for each in scene.heard(name)[1:]]


def test_it_starts_where_the_state_stands(declared: Scene) -> None:
    """Operations that a bootstrap from the state cannot include yet arrive as items: none is
    lost."""
    declared.projected(vm("projected"))
    declared.push()
    declared.pushed(vm("not projected"))
    listen(declared)
    declared.push()
    assert items(declared) == ["not projected"]
    declared.pushed(vm("later"))
    assert items(declared) == ["not projected", "later"]


def test_nobody_serves_it_before_it_is_answered(declared: Scene) -> None:
    """A sweep before that leaves the connection alone; a sweep after a crash hands it over."""
    listener = Listener(1, FEED, "i1")
    until = NOW + limits.REGISTERING_MS
    declared.connections.open(
        Connection("c", NOW, State.JOINING, FEED, runner_expires_ms=until, listener=listener)
    )
    declared.sweeper.run()
    assert declared.inbox.list(FEED) == []
    declared.now_ms = until
    declared.sweeper.run()
    assert [change.connection_id for change in declared.inbox.list(FEED)] == ["c"]


def test_a_registration_that_is_overtaken_leaves_nothing(declared: Scene) -> None:
    """Its connection went between our reading and our writing."""
    gone = Connection("c", NOW, listener=Listener(1, FEED))
    declared.receiver.registrar.receive(gone, json.dumps(REGISTRATION))
    assert declared.registry.registered(FEED) == []
    assert declared.sockets.sent["c"] == []


@pytest.mark.parametrize("away", ["busy", "gone"])
def test_an_answer_that_is_not_taken_ends_it(declared: Scene, away: str) -> None:
    """The first message to a listener is the answer, or there is none."""
    getattr(declared.sockets, away).add("c")
    listen(declared)
    declared.sockets.busy.clear()
    declared.pushed(vm())
    assert declared.sockets.sent["c"] == []
    assert declared.connections.get("c") is None
    assert declared.registry.registered(FEED) == []
    assert declared.counted["ListenersRegistered"] == 0


def test_the_earlier_of_an_instance_is_idle(declared: Scene) -> None:
    """It stays open; only the later one gets items, and both were counted."""
    listen(declared, "first")
    declared.push()
    listen(declared, "second")
    declared.push()
    declared.pushed(vm())
    assert declared.sockets.closed == []
    assert declared.connection("first").state is State.OPEN
    assert (items(declared, "first"), items(declared, "second")) == ([], ["x1"])
    assert declared.counted["ListenersRegistered"] == 2


def test_a_password_is_asked_for(declared: Scene) -> None:
    """It is in the payload; a wrong one ends the connection with the reason."""
    stored = hash_password("a good password", salt=b"0" * 16, now_ms=NOW)
    declared.configure(read_passwords=(stored,))
    declared.connections.open(Connection("c", NOW, listener=Listener(1, FEED)))
    declared.say("c", **REGISTRATION)
    assert declared.sockets.sent["c"][0].startswith("password: must be the read password")
    assert declared.sockets.closed == ["c"] and declared.connections.get("c") is None
    declared.connections.open(Connection("d", NOW, listener=Listener(1, FEED)))
    declared.say("d", **REGISTRATION, password="a good password")
    assert declared.heard("d") == [SAID]


def test_other_clients_are_as_they_were(declared: Scene) -> None:
    """Other clients get events in addition to a listener, which gets no cursors."""
    listen(declared)
    declared.connect("own")
    declared.say("own", action="subscribe")
    declared.push()
    declared.pushed(vm("x1", "nic", "alias"), op("y"))
    assert declared.events("own") == ["x1", "y"]
    assert items(declared) == ["x1"]
    declared.now_ms += limits.IDLE_CURSOR_MS
    declared.pushed(op("z"))
    assert items(declared) == ["x1"]


def test_F31_what_is_older_than_max_age_goes(declared: Scene) -> None:
    """Younger items stay, and older ones that a follower has still to send."""
    for name in ("old", "undelivered", "young"):
        if name == "young":
            declared.now_ms += 3600 * 1000 + 1
        declared.projected(vm(name))
        if name == "old":
            declared.push()
    assert declared.retention_service.run(FEED).floor == 2  # as far as the push follower is
    declared.push()
    assert declared.retention_service.run(FEED).floor == 3


@pytest.mark.parametrize("seconds", [0, None, "3600", float("nan"), True, 59])
def test_F32_max_age_is_a_number_of_seconds(declared: Scene, seconds: object) -> None:
    """A missing or invalid value is an error that names the field, and nothing is saved."""
    profile = declared.profiles.profile(FEED)
    with pytest.raises(InvalidSetting, match="maxAge"):
        validate(replace(profile, max_age_s=seconds))  # type: ignore[arg-type]


def test_F33_a_resource_is_declared_once(declared: Scene) -> None:
    """The error names it."""
    profile = replace(declared.profiles.profile(FEED), resources=(VM, VM))
    with pytest.raises(InvalidSetting) as caught:
        validate(profile)
    assert str(caught.value) == 'Resource "vm" appears multiple times in configuration'


def test_a_store_that_is_away_registers_nobody(declared: Scene) -> None:
    """The client sees no answer and registers again."""

    class Away:
        def profile(self, feed: str) -> object:
            raise Unavailable("away")

    registrar = replace(
        declared.receiver.registrar,
        guard=replace(declared.guard, profiles=Away()),  # type: ignore[arg-type]
    )
    connection = Connection("c", NOW, listener=Listener(1, FEED))
    with pytest.raises(Unavailable):
        registrar.receive(connection, json.dumps(REGISTRATION))
    assert declared.registry.registered(FEED) == []


NET = Resource("net", ("name",), "/nets")
BOTH = [{"resource": "vm", "subResources": ["nic"]}, {"resource": "net", "subResources": ["name"]}]


def listen_for(scene: Scene, name: str, *resources: str) -> None:
    """Register as the instance `i1`, in the second version."""
    kinds = [each for each in BOTH if each["resource"] in resources]
    scene.connections.open(Connection(name, scene.now_ms, listener=Listener(2, FEED)))
    scene.say(name, instance="i1", service="tcns", resources=kinds)


@pytest.mark.parametrize("live", [True, False])
def test_13_8_a_later_registration_leaves_the_earlier_connection_open(
    scene: Scene, live: bool
) -> None:
    """Resources that the later one took are not sent to it; the rest is, in any state."""
    scene.configure(resources=(VM, NET), max_age_s=3600)
    listen_for(scene, "old", "vm", "net")
    if live:
        scene.push()
    listen_for(scene, "new", "vm")
    for name in ("x1", "x2"):
        scene.pushed(vm(name), op(f"n-{name}", type="net", changed=["name"]))

    assert items(scene, "new") == ["x1", "x2"]
    assert items(scene, "old") == ["n-x1", "n-x2"]
    assert scene.connection("old").state is State.LIVE

    scene.project()
    listen_for(scene, "third", "net")
    scene.pushed(vm("x3"), op("n-x3", type="net", changed=["name"]))
    assert items(scene, "third") == ["n-x3"]
    assert items(scene, "old") == ["n-x1", "n-x2"]
    scene.say("old", action="ping")
    assert scene.heard("old")[-1] == {"reply": "pong", "state": "live"}
    assert {each.connection_id for each in scene.registry.registered(FEED)} == {"new", "third"}


def test_13_8_an_idle_connection_ignores_what_it_is_sent(declared: Scene) -> None:
    """A heartbeat is not a registration."""
    listen(declared, "old")
    declared.push()
    listen(declared, "new")
    declared.push()
    declared.receiver.receive("old", "heartbeat")

    assert declared.connections.get("old") is not None
    assert len(declared.heard("old")) == 1
