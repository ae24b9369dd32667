"""One server for the tests of a module that only need a running one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidings.server.running import Server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server with the options that the module names in `OPTIONS`."""
    with Server(*getattr(request.module, "OPTIONS", ())) as running:
        yield running
