"""Three hosts: a master, a middle one that copies it, and a far one that copies both.

The two copies are started before the master, which most of them find down at first (D12).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests import hosts
from tests.compat.chained.place import Place, Sources
from tests.e2e.cutting import Cutter, cutting

OBSERVED_FEEDS = (
    "t0",
    "t1",
    "t2",
    "t3",
    "t4",
    "t5",
)  # events of the master, for its direct readers
FEEDS = ("main", "steered", "chosen", "wait", "boot", "latest", "led", "ring")


@dataclass(frozen=True)
class Chain:
    """*way* lies between the far host and the master's feed `led`."""

    master: Place
    middle: Place
    far: Place
    way: Cutter
    before: dict[str, Any]  # the status of the middle one's feed main before there was a master


def _of_middle(master: Place, own: Place) -> Sources:
    sources = {name: {"url": master.feed(name)} for name in ("main", "steered", "ring")}
    chosen = {"url": master.feed("chosen"), "types": ["video"], "share": "mod:2:0"}
    led = {"url": master.feed("led"), "role": "elected", "cluster": "led"}
    return {**sources, "chosen": chosen, "led": {**led, "address": own.feed("led")}}


def _of_far(master: Place, middle: Place, own: Place, way: Cutter) -> Sources:
    main = {"url": master.feed("main"), "role": "follower", "leader": middle.feed("main")}
    policies = {
        name: {"url": master.feed(name), "fall_off": policy}
        for name, policy in (("wait", "wait"), ("boot", "bootstrap"), ("latest", "latest"))
    }
    through = f"{way.url}feeds/led"
    led = {"url": through, "role": "elected", "cluster": "led", "address": own.feed("led")}
    return {"main": main, **policies, "led": led}


@pytest.fixture(scope="package")
def chain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chain]:
    kind, names = hosts.wanted(request.config), ("master", "middle", "far")
    master, middle, far = (Place(kind, tmp_path_factory.mktemp(name)) for name in names)
    with cutting(master.port) as way:
        coordinator = hosts.coordinator(master.host)
        master.chain((*FEEDS, *OBSERVED_FEEDS), {"ring": {"url": middle.feed("ring")}}, coordinator)
        middle.chain(FEEDS, _of_middle(master, middle), coordinator)
        far.chain(FEEDS, _of_far(master, middle, far, way), coordinator)
        with middle:
            before = middle.relay("main")
            with master, far:
                yield Chain(master, middle, far, way, before)
