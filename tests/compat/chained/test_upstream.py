"""A feed of a host over HTTP keeps the contract of an upstream."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.compat.chained.conftest import OBSERVED_FEEDS, Chain
from tests.compat.chained.place import Place, until
from tests.contract.upstream import UpstreamContract
from tidings.http.outbound.upstream import HttpUpstream

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
