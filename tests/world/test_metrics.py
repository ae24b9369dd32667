"""`/metrics` by the rules of promtool, and scraped without a pause under load."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest
from tidings.server.running import Server

from tests.oplog.feed import op
from tests.oplog.wire import PATIENCE_S, until

pytestmark = [pytest.mark.prometheus, pytest.mark.promtool]


def test_promtool_has_nothing_to_object_to(tmp_path: Path) -> None:
    """After some of everything: posts, refusals, a consumer, a chained feed."""
    with (
        Server() as upstream,
        Server("--feeds", "main,copy", "--chain", f"copy={upstream.url}feeds/main") as server,
    ):
        for base in (upstream.url, server.url):
            assert httpx.post(f"{base}ops", json=op("x")).status_code == 204
        assert httpx.post(f"{server.url}ops", json={"event": "no"}).status_code == 400
        for name in ("one", "two"):
            made = httpx.put(f"{server.url}feeds/main/consumers/{name}", json={"from": "oldest"})
            assert made.status_code < 300, made.text
        until(
            lambda: (
                'log_head{feed="copy"} 1'
                in httpx.get(f"{server.url}metrics", timeout=PATIENCE_S).text
            )
        )
        text = httpx.get(f"{server.url}metrics", timeout=PATIENCE_S).text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert 'tidings_consumer_lag{feed="main",consumer="one"}' in text
    assert 'tidings_relay_lag{feed="copy"}' in text
