"""A stream works with any client: two third-party clients, and a real browser's EventSource."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse
from sseclient import SSEClient
from websockets.sync.client import ClientConnection

from tests.compat.oplog.feed import Feed, feed_of, op
from tests.hosts import make_key
from tests.unit.client import chromium
from tidings.core.state.rows import bucket_of
from tidings.server.running import Server

HOSTILE = "<é&\u2028\u0085>\r\n\\"  # line ends of every kind must stay inside one data line
PATIENCE_S = 180.0
COUNT = 1200  # more than one page holds, and more than one chunk
Seen = tuple[str, str, Any]
ROOT = Path(__file__).parents[3]


def _by_httpx_sse(url: str, last_id: str) -> Iterator[Seen]:
    with (
        httpx.Client(timeout=PATIENCE_S) as client,
        connect_sse(client, "GET", url, headers={"Last-Event-ID": last_id}) as source,
    ):
        for event in source.iter_sse():
            yield event.id, event.event, json.loads(event.data)


def _by_sseclient(url: str, last_id: str) -> Iterator[Seen]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last_id}
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as answer:
        for event in SSEClient(answer.iter_bytes()).events():
            yield str(event.id), event.event, json.loads(event.data)


Read = Callable[[str, str], Iterator[Seen]]
readers = pytest.mark.parametrize("read", [_by_httpx_sse, _by_sseclient])


def _url(feed: Feed) -> str:
    return f"http://127.0.0.1:{feed.port}{feed.path}"


def _until_live(events: Iterator[Seen]) -> list[Seen]:
    return list(takewhile(lambda seen: seen[1] != "live", events))


@readers
def test_a_replay_is_read_by_others(feed: Feed, read: Read) -> None:
    """From an event id: every operation with its id, its name and its text as it was posted."""
    (start,) = feed.post(op("x"))
    half = COUNT // 2
    ids = feed.post(*[op(f"{HOSTILE}{number}", data=HOSTILE) for number in range(half)])
    ids += feed.post(*[op(f"y{number}", "update") for number in range(half)])

    seen = list(islice(read(_url(feed), start), COUNT))

    assert [event_id for event_id, _, _ in seen] == ids
    assert [name for _, name, _ in seen] == ["insert"] * half + ["update"] * half
    assert (seen[7][2]["id"], seen[7][2]["data"]) == (f"{HOSTILE}7", HOSTILE)


@readers
def test_a_copy_is_read_by_others(feed: Feed, read: Read) -> None:
    """Reset, every object, live; the id of any row is one to resume from, without a reset."""
    names = {f"x{number}" for number in range(100)}
    feed.post(*map(op, sorted(names)))
    feed.settle()
    seen = _until_live(read(_url(feed), "0"))
    later = _until_live(read(_url(feed), seen[50][0]))

    assert seen[0][1] == "reset"
    assert {data["id"] for _, _, data in seen[1:]} == names
    assert {name for _, name, _ in later} == {"insert"}
    assert {data["id"] for _, _, data in seen[51:]} <= {data["id"] for _, _, data in later}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as socket:
        yield socket


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another origin, where the example page is served."""
    with chromium.files(ROOT) as origin:
        yield origin


@pytest.mark.browser
def test_a_browser_from_another_origin(
    browser: ClientConnection, elsewhere: str, tmp_path: Path
) -> None:
    """It copies, goes live, and across a restart of the feed misses nothing and repeats nothing."""
    with (
        Server("--allow-origin", elsewhere, data=tmp_path / "data") as host,
        chromium.tab(browser) as page,
    ):
        feed = feed_of(host, "main")
        feed.post(op("x1"), op("x2"))
        page.open(f"{elsewhere}/examples/browser/?feed={host.url}feeds/main/ops")
        page.until("copy.log.includes('live')")
        feed.post(op("x1", "update", data={"n": 1}), op("x2", "delete"), op("x3"))
        page.until("copy.objects.has('video/x3')")

        host.kill()
        page.until("copy.source.readyState !== EventSource.OPEN")
        host.start()
        ids = feed.post(*[op(f"y{number}") for number in range(50)])
        page.until("copy.objects.has('video/y49')")

        seen = page.js("copy.log")
        assert seen[0] == "reset"
        assert seen.count("reset") == seen.count("live") == 1
        assert seen[-50:] == ["insert"] * 50
        assert page.js("copy.cursor") == ids[-1]
        assert sorted(page.js("[...copy.objects.keys()]")) == sorted(
            ["video/x1", "video/x3", *[f"video/y{number}" for number in range(50)]]
        )
        assert page.js("copy.objects.get('video/x1').data.n") == 1


@pytest.mark.browser
def test_a_page_of_another_origin_reads_when_to_come_back(
    browser: ClientConnection, elsewhere: str, tmp_path: Path
) -> None:
    """A browser hides headers of an answer from a page unless the answer names them."""
    with Server("--allow-origin", elsewhere, data=tmp_path) as host, chromium.tab(browser) as page:
        page.open(f"{elsewhere}/")
        key = make_key(host, "--role", "read", "--rate", "1")
        found = page.js(
            f"""(async () => {{
                const headers = {{authorization: "Bearer {key}"}};
                let answer;
                do answer = await fetch("{host.url}feeds/main/changes", {{headers}});
                while (answer.status === 200);
                return [answer.status, answer.headers.get("retry-after")];
            }})()"""
        )
        assert found == [429, "1"]


@pytest.mark.browser
@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_a_browser_follows_and_posts_with_a_key(
    browser: ClientConnection, elsewhere: str, tmp_path: Path, transport: str
) -> None:
    """From another origin, with `@tidings/client`; the cursor is in the browser's storage."""
    with Server("--allow-origin", elsewhere, data=tmp_path) as host, chromium.tab(browser) as page:
        key = make_key(host, "--role", "read", "--role", "ingest")
        page.open(f"{elsewhere}/examples/browser/copy.js")
        script = f"""(async (last, operation) => {{
            const {{ Feed, LocalStorageStore, post }} =
                await import("{elsewhere}/clients/javascript/src/index.js");
            const [url, password] = ["{host.url}", "{key}"];
            await post(url, operation, {{ password }});
            const store = new LocalStorageStore("cursor");
            const options = {{ password, store, transport: "{transport}", cursor: "0" }};
            const names = [];
            for await (const {{ event }} of new Feed(url, options)) {{
                names.push(event);
                if (event === last) return names;
            }}
        }})"""
        insert, delete = (json.dumps(op("x1", event)) for event in ("insert", "delete"))
        assert page.js(f"{script}('live', {insert})") == ["reset", "insert", "live"]
        later = page.js(f"{script}('delete', {delete})")
        assert later[-1] == "delete" and "reset" not in later


@pytest.mark.browser
def test_20_4_a_browser_finds_what_is_wrong_with_its_copy(
    browser: ClientConnection, elsewhere: str, tmp_path: Path
) -> None:
    """A lost object, one in the wrong place, one too many: each is found, and repaired."""
    with Server("--allow-origin", elsewhere, data=tmp_path) as host, chromium.tab(browser) as page:
        feed = feed_of(host, "main")
        feed.post(*[op(f"x{number}") for number in range(100)])
        feed.post(op("x0", "update", data={"n": 1}), op("x1", "delete"), op("a/b%", type="c/d%"))
        page.open(f"{elsewhere}/examples/browser/?verify=0.1&feed={host.url}feeds/main/ops")
        page.until("window.copy && copy.places.size > 100")
        feed.post(op("y0"), op("x2", "delete"), op("x3", "update", data={"n": 2}))
        page.until("copy.get('video', 'y0')")
        page.until("copy.compared > 1")
        assert page.js("wrong") == []

        host.kill()  # the connection is closed: nothing is lost
        page.until("state === 'waiting'")
        host.start()
        feed.post(op("y1"), op("y0", "delete"), op("x2"))
        page.until("copy.get('video', 'y1') && copy.get('video', 'x2')")
        compared = page.js("copy.compared")
        page.until(f"copy.compared > {compared} + 1 && !copy.get('video', 'y0')")
        assert page.js("wrong") == []

        page.js("(copy.places.delete('video/x7'), copy.objects.delete('video/x7'))")
        page.js("copy.places.set('video/x8', {page: 1, slot: 77, isDeleted: false})")
        page.js("copy.places.set('video/z', {page: 1, slot: 78, isDeleted: false})")
        page.js("copy.objects.set('video/z', {})")
        page.until("wrong.length && copy.get('video', 'x7') && !copy.get('video', 'z')")
        compared = page.js("copy.compared")
        page.until(f"copy.compared > {compared} + 1")
        buckets = {bucket_of(key) for key in ("video/x7", "video/x8", "video/z")}
        assert sorted(page.js("wrong")) == sorted(buckets)
        assert page.js("copy.objects.size") == 101
        assert page.js("copy.get('video', 'x0').data.n") == 1
