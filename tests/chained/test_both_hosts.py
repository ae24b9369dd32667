"""A twin copies a server, and a server the twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chained.place import Place, arrived, until
from tests.hosts import host

pytestmark = pytest.mark.java


def test_a_feed_passes_through_both_hosts(tmp_path: Path) -> None:
    """Ids and state are the master's at the end of the chain."""
    server, twin, far = (
        Place(host(kind), tmp_path / name)
        for name, kind in (("server", "server"), ("twin", "twin"), ("far", "server"))
    )
    server.chain(["main"], {})
    twin.chain(["main"], {"main": {"url": server.feed("main")}})
    far.chain(["main"], {"main": {"url": twin.feed("main")}})
    with server, twin, far:
        server.post("main", "a", "b")
        server.post("main", "a", event="delete")
        server.post("main", "c", kind="user")
        arrived(far, "main", 3)
        assert far.log("main") == twin.log("main") == server.log("main")
        until(lambda: sorted(far.state("main")) == ["user/c", "video/b"])
