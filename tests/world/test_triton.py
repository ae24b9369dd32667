"""The listener of Triton's change feed, as npm has it (`changefeed` 1.5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.compat.oplog.wire import until
from tests.compat.triton.wire import ChangeFeed, item
from tests.world import installing
from tests.world.messages import Client
from tests.world.nginx import Nginx
from tidings.server.running import Server

pytestmark = [pytest.mark.nginx, pytest.mark.npm]
RESOURCES = ("vm:nic,alias=/vms", "network:routes=/networks")
VM = {"resource": "vm", "subResources": ["alias", "nic"], "bootstrapRoute": "/vms"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    declared = [part for resource in RESOURCES for part in ("--resource", resource)]
    with Server(*declared, "--max-age", "3600") as running:
        yield running


@pytest.fixture
def feed(server: Server) -> ChangeFeed:
    return ChangeFeed(server.port, "main")


def _listener(url: str, instance: str, *resources: str) -> Client:
    script = str(installing.node_folder() / "listener.mjs")
    return Client(["node", "--no-warnings", script, url.rstrip("/"), instance, *resources])


def _items(client: Client) -> list[str]:
    return [each["id"] for each in client.messages if each["kind"] == "item"]


def _kinds(client: Client) -> list[str]:
    return [each["kind"] for each in client.messages]


@pytest.mark.parametrize("way", ["direct", "sockets"])
def test_it_receives_its_route_and_then_each_item(
    server: Server, nginx: Nginx, feed: ChangeFeed, way: str
) -> None:
    """In the first version of the protocol, and with two resources in the second."""
    url = server.url if way == "direct" else nginx.url(way)
    with (
        _listener(url, f"one-{way}", "vm:nic") as one,
        _listener(url, f"two-{way}", "vm:alias", "network:routes") as two,
    ):
        until(lambda: _kinds(one) == ["bootstrap"])
        until(lambda: _kinds(two) == ["bootstrap"] * 2)
        feed.publish(item("x1", "nic", extra={"n": 1}))
        feed.publish(item("x2", "alias"))
        feed.publish(item("x3", "routes", resource="network"))
        feed.publish(item("x4", "nic", "alias"))
        until(lambda: _items(one) == ["x1", "x4"])
        until(lambda: _items(two) == ["x2", "x3", "x4"])
    assert one.messages[0]["bootstrapRoute"] == VM["bootstrapRoute"]
    assert one.messages[1]["item"]["extra"] == {"n": 1}
    assert [each["bootstrapRoute"] for each in two.messages[:2]] == ["/vms", "/networks"]


def test_it_registers_again_when_the_server_was_killed(server: Server, feed: ChangeFeed) -> None:
    """A bootstrap comes first, then the items."""
    with _listener(server.url, "again", "vm:nic") as client:
        until(lambda: _kinds(client) == ["bootstrap"])
        server.kill()
        server.start()
        until(lambda: _kinds(client).count("bootstrap") == 2)
        feed.publish(item("y1", "nic"))
        until(lambda: _items(client) == ["y1"])


def test_an_older_listener_of_an_instance_stays_idle(server: Server, feed: ChangeFeed) -> None:
    """The newer one is served, and neither of them disconnects the other."""
    with ExitStack() as stack:
        older = stack.enter_context(_listener(server.url, "same", "vm:nic"))
        until(lambda: _kinds(older) == ["bootstrap"])
        newer = stack.enter_context(_listener(server.url, "same", "vm:nic"))
        until(lambda: _kinds(newer) == ["bootstrap"])
        other = stack.enter_context(_listener(server.url, "other", "vm:nic"))
        until(lambda: _kinds(other) == ["bootstrap"])
        published = [f"z{number}" for number in range(10)]
        for name in published:
            feed.publish(item(name, "nic"))
            until(lambda: _items(other) == _items(newer) != [])
        until(lambda: _items(newer) == published)
        assert _kinds(older) == ["bootstrap"]
        assert _kinds(newer) == ["bootstrap"] + ["item"] * len(published)
        assert feed.stats()["listeners"] == 2
