"""Publishing items, their receivers, registering, and the words of every refusal."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.compat.triton.wire import ITEM, REGISTRATION, ChangeFeed, item, v1


def test_F01_the_resources_are_listed(feed: ChangeFeed) -> None:
    """With their sub-resources and routes; a resource without a route is listed with ours."""
    answer = feed.ask()
    assert answer.status_code == 200
    assert answer.json() == {
        "resources": [
            {"resource": "vm", "subResources": ["nic", "alias"], "bootstrapRoute": "/vms"},
            {
                "resource": "network",
                "subResources": ["routes", "name"],
                "bootstrapRoute": "/networks",
            },
            {
                "resource": "own",
                "subResources": ["a", "b"],
                "bootstrapRoute": f"/feeds/{feed.name}/objects?type=own",
            },
        ]
    }


def test_F01_the_default_feed_has_the_short_addresses(feed: ChangeFeed) -> None:
    """`/changefeeds` and `/changefeeds/stats` are those of main."""
    base = f"http://127.0.0.1:{feed.port}"
    assert httpx.get(f"{base}/changefeeds").json()["resources"][0]["resource"] == "vm"
    assert set(httpx.get(f"{base}/changefeeds/stats").json()) == {"listeners", "registrations"}


def test_F02_F03_F04_the_statistics_follow_who_listens(feed: ChangeFeed) -> None:
    """Two, one, none; each entry has what was registered with and nothing else."""
    several = {
        "instance": "second",
        "resources": [
            {"resource": "network", "subResources": ["name"]},
            {"resource": "vm", "subResources": ["nic"]},
        ],
    }
    with feed.registered(v1("first")):
        with feed.registered(several, "2.0.0"):
            assert feed.stats() == {
                "listeners": 2,
                "registrations": [
                    v1("first"),
                    {**v1("second", "network", "name"), "service": None},
                    {**v1("second", "vm", "nic"), "service": None},
                ],
            }
        until(lambda: feed.stats() == {"listeners": 1, "registrations": [v1("first")]})
    until(lambda: feed.stats() == {"listeners": 0, "registrations": []})


def test_F22_F23_an_item_comes_once_however_many_match(feed: ChangeFeed) -> None:
    """One of two sub-resources is enough; two of two lead to one message."""
    with feed.registered(v1()) as socket:
        feed.publish(item("one", "state", "alias"), item("both", "nic", "alias"), item("end"))
        assert [socket.hear()["changedResourceId"] for _ in range(3)] == ["one", "both", "end"]
        assert socket.silent()


def test_F24_what_has_nothing_in_common_is_not_told(feed: ChangeFeed) -> None:
    """Another sub-resource, another resource of the same sub-resource, or none at all."""
    with feed.registered(v1("i", "vm", "name")) as socket:
        feed.publish(
            item("sub", "nic"),
            item("resource", "name", resource="network"),
            {"changeKind": {"resource": "vm", "subResources": []}, "changedResourceId": "none"},
            item("end", "name"),
        )
        assert socket.hear()["changedResourceId"] == "end"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"changedResourceId": "x"}, "changeKind object required on item to publish"),
        ({"changeKind": "vm"}, "changeKind object required on item to publish"),
        ({"changeKind": {}}, "changedResourceId required on item to publish"),
        (7, "changeKind object required on item to publish"),
    ],
)
def test_F25_an_item_needs_kind_and_id(feed: ChangeFeed, body: object, sentence: str) -> None:
    """Refused with the exact words, alone or among good ones, and nothing is published."""
    for sent in (body, [item("good"), body]):
        answer = feed.send(sent)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)
    assert feed.objects()["objects"] == []


def test_F26_extra_fields_reach_the_listener(feed: ChangeFeed) -> None:
    """Whatever they are; `published` is ours, milliseconds since 1970 as a string."""
    with feed.registered(v1()) as socket:
        feed.publish(item("x1", resourceObject={"alias": "web"}, note=None, published="no"))
        heard = socket.hear()
    assert 1_600_000_000_000 < int(heard.pop("published")) < 5_000_000_000_000
    assert heard == item("x1", resourceObject={"alias": "web"}, note=None)


def test_F27_publishing_needs_no_listener(feed: ChangeFeed) -> None:
    """None there, or one that is gone without a word: it succeeds all the same."""
    feed.publish(item("alone"))
    with feed.registered(v1()) as socket:
        socket.raw.socket.close()
        feed.publish(item("dead"))
    feed.publish(item("behind"))


def test_F28_an_undeclared_resource_is_refused(feed: ChangeFeed) -> None:
    """As an item; as an operation it stays in the log, and the later items arrive."""
    answer = feed.send(item("d1", resource="disk"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_item")
    assert answer.json()["error"]["message"] == "unknown resource: disk"
    with feed.registered(v1()) as socket:
        feed.post({"event": "update", "type": "disk", "id": "d1", "changed": ["nic"]})
        feed.publish(item("behind"))
        assert socket.hear()["changedResourceId"] == "behind"


def test_F34_every_listener_hears_every_publisher(feed: ChangeFeed) -> None:
    """Two publishers at once, two listeners: each gets every item of either, once."""
    wanted = {f"{name}{number}" for name in "ab" for number in range(10)}
    with feed.registered(v1("first")) as first, feed.registered(v1("second")) as second:
        for number in range(10):
            for name in "ab":
                feed.publish(item(f"{name}{number}"))
        for socket in (first, second):
            assert {socket.hear()["changedResourceId"] for _ in wanted} == wanted
            assert socket.silent()


VM = {"resource": "vm", "subResources": ["nic", "alias"], "bootstrapRoute": "/vms"}
NETWORK = {"resource": "network", "subResources": ["routes", "name"], "bootstrapRoute": "/networks"}


def _v2(*resources: Any) -> dict[str, Any]:
    return {"instance": "i", "service": "tcns", "resources": list(resources)}


_GOOD = {"resource": "vm", "subResources": ["nic"]}
# The registrations that are refused, by row; one of F7 is in version one, of F8 in version two.
REFUSALS: list[tuple[str, object, str]] = [
    ("F7a", "not json", "failed to parse v1 registration payload"),
    ("F7b", "[]", "v1 registration should be an object"),
    ("F7c", {"service": "tcns"}, 'v1 registration should contain an "instance" identifier'),
    ("F7c", {"instance": 7}, 'v1 registration should contain an "instance" identifier'),
    ("F7d", {"instance": "i"}, 'v1 registration should contain a "changeKind"'),
    (
        "F7e",
        {"instance": "i", "changeKind": {}},
        'v1 registration should contain a valid "resource"',
    ),
    (
        "F7f",
        {"instance": "i", "changeKind": {"resource": "vm", "subResources": "nic"}},
        'v1 registration should contain a valid "subResources" array',
    ),
    ("F7g", v1("i", "disk"), "unknown resource: disk"),
    ("F8a", "not json", "failed to parse v2 registration payload"),
    ("F8b", "7", "v2 registration should be an object"),
    ("F8c", {"resources": []}, 'v2 registration should contain an "instance" identifier'),
    ("F8d", {"instance": "i"}, 'v2 registration should contain a "resources" array'),
    ("F8e", _v2(), "no resources specified"),
    ("F8f", _v2("vm"), 'v2 registration "resources" array should contain objects'),
    ("F8g", _v2({"resource": ""}), 'v2 registration resources should contain a "resource"'),
    ("F8h", _v2({"resource": "vm"}), 'v2 registration resources should contain "subResources"'),
    ("F8i", _v2({"resource": "disk", "subResources": []}), "unknown resource: disk"),
    ("F9", _v2(_GOOD, {"resource": "disk", "subResources": []}), "unknown resource: disk"),
]


def test_F05_the_payloads_of_the_proposal(feed: ChangeFeed) -> None:
    """Sent unchanged: the route, then the item, and the same entry in the statistics."""
    with feed.connected() as socket:
        socket.say(REGISTRATION)
        assert socket.hear() == VM
        assert feed.send(ITEM).status_code == 204
        heard = socket.hear()
        assert heard.pop("published").isdigit()
        assert heard == json.loads(ITEM)
        assert feed.stats() == {"listeners": 1, "registrations": [json.loads(REGISTRATION)]}


def test_F05_the_route_comes_before_any_item(feed: ChangeFeed) -> None:
    """Also if the log moves while the listener registers: that is an item or in its bootstrap."""
    for number in range(5):
        feed.publish(item(f"before{number}"))
        with feed.connected() as socket:
            socket.say(v1(f"i{number}"))
            feed.publish(item(f"during{number}"))  # on another connection: before it or after it
            assert socket.hear() == VM
            known = {each["id"] for each in feed.objects()["objects"]}
            feed.publish(item(f"behind{number}"))
            while f"behind{number}" not in known:
                known.add(socket.hear()["changedResourceId"])
            assert f"during{number}" in known


def test_F06_a_route_for_each_resource_in_order(feed: ChangeFeed) -> None:
    """The second version requests several."""
    asked = _v2(
        {"resource": "network", "subResources": ["name"]}, {"resource": "vm", "subResources": []}
    )
    with feed.connected("2.0.0") as socket:
        socket.say(asked)
        assert socket.hear() == {"bootstrapRoutes": [NETWORK, VM]}


@pytest.mark.parametrize(
    ("row", "payload", "sentence"), REFUSALS, ids=[row for row, _, _ in REFUSALS]
)
def test_F07_F08_F09_refusals(feed: ChangeFeed, row: str, payload: object, sentence: str) -> None:
    """The exact words, then the end; no listener is registered, for no resource of several."""
    with feed.connected("1.0.0" if row.startswith("F7") else "~2") as socket:
        socket.say(payload)
        assert socket.text() == sentence
        assert socket.ended()
    assert feed.stats() == {"listeners": 0, "registrations": []}


@pytest.mark.parametrize(
    ("said", "version"),
    [(None, 1), ("*", 1), ("1.0.0", 1), ("~1", 1), ("1.9.9", 1), ("2.0.0", 2), ("~2", 2), ("3", 2)],
)
def test_F10_the_version_tells_the_payload(
    feed: ChangeFeed, said: str | None, version: int
) -> None:
    """None, or one below 2.0.0, is the first; any other is the second."""
    with feed.connected(said) as socket:
        socket.say("not json")
        assert socket.text() == f"failed to parse v{version} registration payload"


def test_F10_a_browser_says_the_version_in_the_address(feed: ChangeFeed) -> None:
    """It can send no header."""
    with feed.connected(path=f"{feed.path}?version=2") as socket:
        socket.say(_v2(_GOOD))
        assert socket.hear() == {"bootstrapRoutes": [VM]}


def test_F21_later_texts_are_ignored(feed: ChangeFeed) -> None:
    """Whatever they are, but for a ping, which is answered; items come as before."""
    with feed.registered(v1()) as socket:
        for text in ("heartbeat", "", REGISTRATION, '{"action":"unsubscribe"}'):
            socket.say(text)
        assert socket.silent()
        socket.say({"action": "ping"})
        assert socket.hear()["reply"] == "pong"
        feed.publish(item("x1"))
        assert socket.hear()["changedResourceId"] == "x1"


def test_F29_a_registration_ends_with_its_connection(feed: ChangeFeed) -> None:
    """Also where the client does not say goodbye."""
    with feed.registered(v1()) as socket:
        assert feed.stats()["listeners"] == 1
        socket.raw.socket.close()
    until(lambda: feed.stats() == {"listeners": 0, "registrations": []})


def test_F30_the_later_registration_of_an_instance_wins(feed: ChangeFeed) -> None:
    """The earlier connection stays open and idle, or they would replace each other forever."""
    later = v1("same", "vm", "nic")
    with feed.registered(v1("same")) as first, feed.registered(later) as second:
        for number in range(3):
            feed.publish(item(f"x{number}"))
            assert second.hear()["changedResourceId"] == f"x{number}"
        first.say("heartbeat")
        first.say({"action": "ping"})
        assert first.hear() == {"reply": "pong", "state": "live"}
        assert first.silent()
        assert feed.stats() == {"listeners": 1, "registrations": [later]}
        first.raw.close()
        feed.publish(item("last"))
        assert second.hear()["changedResourceId"] == "last"
        assert feed.stats() == {"listeners": 1, "registrations": [later]}


def test_F30_one_instance_listens_for_two_resources(feed: ChangeFeed) -> None:
    """Each on a connection of its own, as the proposal has it."""
    with feed.registered(v1("same")) as vms, feed.registered(v1("same", "network", "name")) as nets:
        feed.publish(item("n", "name", resource="network"), item("v", "nic"))
        assert nets.hear()["changedResourceId"] == "n"
        assert vms.hear()["changedResourceId"] == "v"
        assert feed.stats()["listeners"] == 2
