"""The targets of the suite: `--base-url`, or a server and a twin of its own.

On a twin as well: only there events of API Gateway are translated for each rule. And once more on
a twin with several lanes of push, for events over WebSockets.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conformance.listeners import TRUSTED
from tests.conformance.target import SETTINGS, Target, parse_skips, socket_url
from tests.hosts import host
from tidings.client.address import DEFAULT_FEED

_STEPS = (
    *("steps", "transport_steps", "change_steps", "listener_steps", "consumer_steps"),
    *("erasure_steps", "feed_steps"),
)

pytest.register_assert_rewrite(*(f"tests.conformance.{name}" for name in _STEPS))


LANES = 4
_HOSTS = (
    "server",
    pytest.param("twin", marks=pytest.mark.java),
    pytest.param("lanes", marks=pytest.mark.java),
)


# The sections about requests, events, streams and sockets, which each host translates by itself.
# The rules of other sections, cursors (5) among them, are those of the core and of stores
# (tests/contract compares these).
_OF_HOSTS = ("3", "4", "6", "7", "8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _concerns(item)]


def _concerns(item: pytest.Item) -> bool:
    """Return False for a case that another host checks in the same way.

    Lanes change nothing for cases without a WebSocket. The rows of a table differ in values only:
    a twin runs the first row, unless the values are those that a host reads, which does it in the
    same way with lanes.
    """
    parameters = getattr(item, "callspec", None)
    chosen = parameters.params if parameters else {}
    target, case = chosen.get("target"), chosen.get("case")
    if case is None or target not in ("twin", "lanes"):  # a test of another folder, too
        return True
    if target == "lanes":
        return case.needs >= {"ws"} and not case.is_further_row
    return not case.is_further_row or case.section in _OF_HOSTS


@pytest.fixture(scope="module", params=_HOSTS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    option = request.config.getoption
    base_url = option("--base-url")
    if not base_url:
        name = "twin" if request.param == "lanes" else request.param
        lanes = {"push_lanes": LANES} if request.param == "lanes" else {}
        with host(name)() as own:
            yield _target(request, own.url, own.ws_url, alone=True, **lanes)
        return
    if request.param != "server":
        pytest.skip("one target was named")
    target = _target(request, base_url, option("--ws-url") or socket_url(base_url), alone=False)
    yield target
    target.delete_feeds()


def _target(
    request: pytest.FixtureRequest, base_url: str, ws_url: str, *, alone: bool, **settings: int
) -> Target:
    option = request.config.getoption
    base_url, feed, skips = (
        base_url.rstrip("/"),
        option("--feed"),
        parse_skips(option("--skip-rules")),
    )
    any_feed = f"{base_url}/feeds/{feed or DEFAULT_FEED}"
    if httpx.head(f"{any_feed}/v1/stream/none", verify=TRUSTED).status_code == 501:
        skips["21.*"] = "the target has no durable streams"
    if httpx.get(f"{any_feed}/erasures", verify=TRUSTED).status_code == 501:
        skips["22.*"] = "the target has no erasures"
    if httpx.get(f"{any_feed}/history", verify=TRUSTED).status_code == 501:
        skips["9.10"] = "the target keeps no history"
    streams = (option("--stream-url") or base_url).rstrip("/")
    return Target(base_url, ws_url, streams, feed, alone, skips, SETTINGS | settings)
