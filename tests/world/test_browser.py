"""Chromium, if it is installed: the console and an EventSource behind nginx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection

from tests.compat.oplog.feed import Feed, op
from tests.unit.client import chromium
from tests.world import installing
from tests.world.nginx import Nginx
from tidings.server.running import Server

pytestmark = [pytest.mark.browser, pytest.mark.nginx]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as socket:
        yield socket


def test_a_page_reads_on_when_the_proxy_was_killed(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """The example page, from another origin: nothing is lost, and nothing is copied again."""
    folder = tmp_path / "nginx"
    folder.mkdir()
    with (
        chromium.files(installing.ROOT) as elsewhere,
        Server("--allow-origin", elsewhere, data=tmp_path / "data") as server,
        Nginx(folder, server.port) as nginx,
        chromium.tab(browser) as page,
    ):
        feed = Feed(server.port, "main")
        feed.post(op("x1"))
        page.open(f"{elsewhere}/examples/browser/?feed={nginx.url('plain')}feeds/main/ops")
        page.until("copy.objects.has('video/x1') && copy.log.includes('live')")
        nginx.kill()
        page.until("copy.source.readyState !== EventSource.OPEN")
        feed.post(*[op(f"y{number}") for number in range(20)])
        nginx.start()
        page.until("copy.objects.has('video/y19')")
        assert page.js("copy.log.filter((name) => name === 'reset').length") == 1
        assert page.js("copy.objects.size") == 21


@pytest.mark.parametrize("block", ["sockets", "plain"])
def test_the_console_is_live_again_when_the_proxy_was_killed(
    server: Server, nginx: Nginx, browser: ClientConnection, block: str
) -> None:
    """Through nginx, which is started again; `plain` passes no WebSocket, so it reads a stream."""
    live = "document.querySelector('#badge').textContent === 'live'"
    with chromium.tab(browser) as page:
        page.open(f"{nginx.url(block)}console/?from=now")
        page.until(live)
        nginx.kill()
        page.until(f"!({live})")
        nginx.start()
        page.until(live)
