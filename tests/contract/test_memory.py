"""The upstream and the spill in memory keep their contracts."""

from __future__ import annotations

import pytest

from tests.contract.spill import SpillContract
from tests.contract.upstream import UpstreamContract
from tests.fakes import MemorySpill
from tests.unit.core.replication.relay_scene import Net, Node, Time
from tests.unit.core.scene import FEED, op


class InMemory:
    """Implements `UpstreamFeed`."""

    def __init__(self) -> None:
        self.url, net = "http://one.example/feeds/main", Net(Time())
        self.upstream, self._node = net, Node(net, self.url)

    def post(self, kind: str, *ids: str, event: str = "update") -> None:
        self._node.scene.post(*(op(each, event, type=kind) for each in ids))

    def projected(self) -> None:
        self._node.scene.project()

    def raise_floor(self, page: int) -> None:
        self._node.scene.log.raise_floor(FEED, page)


class TestUpstream(UpstreamContract):
    @pytest.fixture
    def upstream_feed(self) -> InMemory:
        return InMemory()


class TestSpill(SpillContract):
    @pytest.fixture
    def spill(self) -> MemorySpill:
        return MemorySpill()
