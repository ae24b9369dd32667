"""
The targets of the suite: `--base-url`, or a server and a twin of its own.

On a twin as well: only there events of API Gateway are translated for each rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.target import Target, parse_skips, socket_url
from tests.hosts import host

_STEPS = ("steps", "transport_steps", "change_steps", "listener_steps", "consumer_steps")
# What the cases of listeners listen for; any other target has to declare it too.
RESOURCES = ("vm:nic,alias=/vms", "own:a,b")

pytest.register_assert_rewrite(*(f"tests.conformance.{name}" for name in _STEPS))


@pytest.fixture(scope="module", params=["server", pytest.param("twin", marks=pytest.mark.java)])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    option = request.config.getoption
    base_url = option("--base-url")
    if not base_url:
        declared = [part for resource in RESOURCES for part in ("--resource", resource)]
        with host(request.param)("--leave", *declared) as own:
            yield _target(request, own.url, own.ws_url, alone=True)
        return
    if request.param != "server":
        pytest.skip("one target was named")
    yield _target(request, base_url, option("--ws-url") or socket_url(base_url), alone=False)


def _target(request: pytest.FixtureRequest, base_url: str, ws_url: str, *, alone: bool) -> Target:
    option = request.config.getoption
    return Target(
        base_url.rstrip("/"),
        ws_url,
        (option("--stream-url") or base_url).rstrip("/"),
        option("--feed"),
        alone,
        parse_skips(option("--skip-rules")),
    )
