"""The examples of `@tidings/client` in headless Chromium; tests/world runs them in Node.js."""

from __future__ import annotations

import re

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.style.source import ROOT
from tests.unit.client import chromium
from tidings.server.running import Server

README = ROOT / "clients/javascript/README.md"


@pytest.mark.browser
def test_the_examples_run_again_after_a_reload(browser: ClientConnection) -> None:
    """A page that shows the objects of a feed shows them again when it is loaded again."""
    blocks = re.findall(r"```js\n(.*?)```", README.read_text(), re.DOTALL)
    with Server() as server, chromium.tab(browser) as page:
        video = {"event": "insert", "type": "video", "id": "x32"}
        httpx.post(server.url, json=video).raise_for_status()
        for run in ("first", "second"):
            page.open(f"{server.url}console/?{run}")
            for number, block in enumerate(blocks):
                module = f"{server.url}console/client/index.js"
                program = re.sub(
                    r'import (.*) from ".*"', rf'const \1 = await import("{module}")', block
                )
                program = program.replace("http://127.0.0.1:8042", server.url)
                program = program.replace("console.log(", f"said{number}.push(")
                program = program.replace("const videos", "globalThis.videos")
                page.js(f"globalThis.said{number} = []; (async () => {{{program}}})(); 1")
            page.until("globalThis.videos?.size === 1 && said0.includes('the copy is complete')")
            page.until("said1.includes('live') && said2.length === 1")
        assert page.errors == []
