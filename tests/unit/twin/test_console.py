"""The console on a twin, which answers like a stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.oplog.feed import Feed, op
from tests.twin import Twin
from tests.unit.client import chromium

pytestmark = [pytest.mark.browser, pytest.mark.java]


def test_the_console_reads_from_a_twin(tmp_path: Path) -> None:
    """From `/` on: events, an object with its history, and charts without a history of the host."""
    with (
        Twin(data=tmp_path / "data") as twin,
        chromium.browser(tmp_path / "profile") as browser,
        chromium.tab(browser) as page,
    ):
        feed = Feed(twin.port, "main")
        feed.post(op("a"))
        page.call("Page.navigate", url=twin.url)
        page.until("document.querySelector('#badge')?.textContent === 'live'")
        assert page.js("location.pathname") == "/console/"
        page.until("document.querySelector('.object')?.textContent === 'video/a'")
        feed.post(op("a"))
        page.until("document.querySelectorAll('.object').length === 2")
        page.js("document.querySelector('.object').click()")
        assert json.loads(page.js("document.querySelector('#inspected').textContent")) is None
        page.js("document.querySelector('#inspector').close()")

        page.open(f"{twin.url}console/?type=video&id=a#/objects")
        page.until("document.querySelectorAll('#history tr').length === 2")
        page.until("!document.querySelector('#object-state').hidden")
        page.open(f"{twin.url}console/#/overview")
        page.until("document.querySelector('#origin')?.textContent.includes('keeps no history')")
        page.until("document.querySelectorAll('#lag-rows tr').length > 0")
