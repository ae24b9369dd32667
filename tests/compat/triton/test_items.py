"""Publishing items, and which of them reach whom."""

from __future__ import annotations

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.compat.triton.wire import ChangeFeed, item, v1


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
