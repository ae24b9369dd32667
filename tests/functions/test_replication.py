"""stream: pages and rows for feeds that copy ours, over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.propose.handler import handle as propose
from functions.publish.handler import handle as publish
from functions.report.handler import handle as report
from tests.functions.cloud import Cloud, become, event, restart
from tests.functions.streaming import get_bytes
from tidings.aws.stage import stage
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.pages import Page, Pages
from tidings.core.replication.relay import Relay
from tidings.core.replication.wire import ReplicationBatch, decode_batch

MASTER = "https://a.example/feeds/main"
UPSTREAM = "https://b.example/feeds/main"
Answer = tuple[int, dict[str, str], bytes]


async def get(what: str, query: str = "", *, method: str = "GET", **headers: str) -> Answer:
    """Return the answer of the deployed app to a waiting caller."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await get_bytes(f"/feeds/{what}", query=query, method=method, headers=named)


def asked(what: str, query: str = "", **headers: str) -> Answer:
    return asyncio.run(get(what, query, **headers))


def batch(query: str = "") -> ReplicationBatch:
    status, _, body = asked("main/pages", query)
    assert status == 200, body
    return decode_batch(body.decode())


def refusal(what: str, query: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    status, _, body = asked(what, query, **headers)
    return status, json.loads(body)["error"]


def posted(*names: str, **fields: object) -> Page:
    """Post one page with an operation per name."""
    operations = [{"event": "insert", "type": "video", "id": name, **fields} for name in names]
    assert ingest(event("http_post", body=json.dumps(operations)), None)["statusCode"] == 204
    return stage().stores.log.read("main", stage().stores.log.head("main") - 1)[0]


def project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the follower `state`."""
    become("state", monkeypatch)
    assert follow({"ring": "main"}, None) == {"batchItemFailures": []}


def chain(monkeypatch: pytest.MonkeyPatch, **known: object) -> None:
    """Make `main` a copy from now on, with *known* stored by its relay."""
    monkeypatch.setenv("TIDINGS_SOURCES", json.dumps({"main": {"url": UPSTREAM}}))
    restart()
    if known:
        relay = replace(Relay("main"), **known)  # type: ignore[arg-type]
        assert stage().stores.relays.write(Relay("main"), relay)


def test_D2_pages_with_their_bytes(cloud: Cloud) -> None:
    """As text, a line per entry, with the commit time and number of each page."""
    pages = [posted("a", data="ä€𝄞"), posted("b", "c")]

    status, headers, body = asked("main/pages")

    assert (status, headers["content-type"]) == (200, "application/x-ndjson; charset=utf-8")
    assert headers["content-length"] == str(len(body))
    assert headers["access-control-allow-origin"] == "*" and "no-store" in headers["cache-control"]
    found = decode_batch(body.decode()).pages
    assert [(p.number, p.at_ms, p.text) for p in found] == [
        (p.number, p.at_ms, p.text) for p in pages
    ]


def test_a_reply_is_packed_for_who_takes_it(cloud: Cloud) -> None:
    """And is the same unpacked; a short one is left as it is."""
    page = posted("a", data="x" * 5000)

    _, headers, body = asked("main/pages", accept_encoding="br, gzip")

    assert (headers["content-encoding"], headers["content-length"]) == ("gzip", str(len(body)))
    assert decode_batch(gzip.decompress(body).decode()).pages[0].text == page.text
    _, headers, _ = asked("main/pages", f"after={page.end.encode()}", accept_encoding="gzip")
    assert "content-encoding" not in headers


def test_D21_who_is_ahead_waits_in_peace(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy may still get there. Its pages are not new, and are not looked up at once."""
    posted("a")
    chain(monkeypatch, master=MASTER, checkpoint=1)
    looks = []
    read = stage().stores.log.read

    def counted(
        feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        looks.append(after)
        return read(feed, after, limit, eventual=eventual)

    monkeypatch.setattr(stage().stores.log, "read", counted)
    found = batch(f"after={Place(9, PAGE_END, 7).encode()}&block=1")

    assert (found.pages, found.pending, found.status.head < 9) == ((), 0, True)
    assert len(looks) < 20


def test_nobody_posts_to_a_copy(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 with the address of the master, as far as it is known; nothing is written."""
    for known, address in (({}, UPSTREAM), ({"master": MASTER}, MASTER)):
        chain(monkeypatch, **known)
        answer = ingest(event("http_post"), None)
        error = json.loads(answer["body"])["error"]
        assert (answer["statusCode"], error["code"]) == (409, "chained")
        assert error["master"] == address
        assert error["message"] == f"feed: is a copy of {address}: post there"
        headers = {"content-type": "application/json"}
        answer = propose(event("http_post", body="1", headers=headers), None)
        assert answer["statusCode"] == 409
        assert json.loads(answer["body"])["error"].endswith(f"is a copy of {address}: post there")
        answer = publish(event("http_post"), None)
        assert (answer["statusCode"], code_of(answer)) == (409, "chained")
    assert stage().stores.log.head("main") == 0


def code_of(answer: dict[str, Any]) -> str:
    return str(json.loads(answer["body"])["error"]["code"])


def test_D1_both_kinds_in_one_deployment(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status of each says where its operations come from."""
    monkeypatch.setenv("TIDINGS_FEEDS", "main,own")
    chain(monkeypatch)

    for feed, source in (("main", UPSTREAM), ("own", "local")):
        asking = event("http_get_status", pathParameters={"feed": feed})
        assert json.loads(report(asking, None)["body"])["source"] == source
    posting = event("http_post", pathParameters={"feed": "own"})
    assert ingest(posting, None)["statusCode"] == 204
