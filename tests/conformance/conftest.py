"""The target of the suite: `--base-url`, or a twin of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.target import Target, parse_skips, socket_url

pytest.register_assert_rewrite("tests.conformance.steps", "tests.conformance.transport_steps")


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    option = request.config.getoption
    base_url = option("--base-url")
    if not base_url:
        from tidings.local.running import Twin

        with Twin("--leave") as twin:
            yield _target(request, twin.url, twin.ws_url, alone=True)
        return
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
