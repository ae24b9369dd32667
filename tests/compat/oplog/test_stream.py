"""Rows O26 to O37: the start of a stream, its blocks and ids, and any client of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from httpx_sse import connect_sse
from sseclient import SSEClient
from websockets.sync.client import ClientConnection, connect

from tests.compat.oplog.conftest import Heartbeats
from tests.compat.oplog.feed import Feed, ask, feed_of, op
from tests.compat.oplog.test_http import carries_oplogs_headers, refused
from tests.compat.oplog.wire import JSON, PATIENCE_S, STREAM, Connection, Listener
from tests.hosts import make_key
from tests.unit.client import chromium
from tidings.client.cli.main import main
from tidings.client.cli.settings import NONE
from tidings.core import limits
from tidings.core.settings.profiles import OPLOG, Profile
from tidings.core.state.rows import bucket_of
from tidings.server.running import Server

FOREIGN = "545b55c7f095528dd0f3863c"  # an ObjectId of 2014
HEARTBEAT_S = 25.5  # oplog's promise
SOON_S = 15.0  # 0.5 s with oplog on an idle machine; a lost wake-up takes 20 s
PROFILES = {
    "refs": Profile(object_url="http://api/{{type}}/{{id}}?{{id}}"),
    "websocket": Profile(object_url="/{{type}}/{{id}}"),
    "oplog": Profile(compat=OPLOG),
}


@pytest.fixture(scope="module")
def owned(host: Server, spare: Iterator[str]) -> dict[str, Feed]:
    """Feeds by what their owner has set, once the server has noticed: its sweep may know them."""
    feeds = {}
    for name, profile in PROFILES.items():
        feeds[name] = feed = feed_of(host, next(spare))
        wanted = ["--object-url", profile.object_url, "--compat", profile.compat or NONE]
        command = ["feed", "set", *host.locator, "--feed", feed.name, *wanted]
        assert CliRunner().invoke(main, command).exit_code == 0
    time.sleep(limits.PROFILE_AGE_MS / 1000)
    return feeds


@pytest.mark.parametrize("accept", [None, JSON, "text/html, application/xml;q=0.9", "text/plain"])
def test_O26_what_does_not_accept_a_stream(shared: Feed, accept: str | None) -> None:
    """406, before the password is looked at."""
    headers = {"authorization": "Basic Og=="} | ({"accept": accept} if accept else {})

    assert refused(ask(shared.port, "GET", shared.path, headers), 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["text/event-stream, */*", "*/*", "text/event-stream;q=0.5"])
def test_O26_what_accepts_among_others(shared: Feed, accept: str) -> None:
    """An extension: oplog accepted its own type only, alone and to the letter."""
    listener = Listener(Connection(shared.port, "GET", shared.path, [("accept", accept)]))

    assert listener.answer.status == 200


def test_O27_the_head_of_a_stream(feed: Feed) -> None:
    """It comes at once, before anything happens."""
    with feed.listening() as listener:
        assert listener.raw == b""
        assert listener.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.answer.headers["transfer-encoding"] == "chunked"
        assert carries_oplogs_headers(listener.answer)


@pytest.mark.parametrize("sent", ["0", "1", "+5", "1795195114525", FOREIGN, FOREIGN.upper()])
def test_O28_the_id_is_echoed(shared: Feed, sent: str) -> None:
    """The id as it was sent, regardless of its target."""
    with shared.listening(sent) as listener:
        assert listener.answer.headers["last-event-id"] == sent


def test_O29_without_an_id_the_stream_starts_now(feed: Feed) -> None:
    """Only later operations, after `live` (P7.4); no reset. An empty id counts as missing."""
    feed.post(op("before"))
    with feed.listening() as one, feed.listening("") as other:
        feed.post(op("after"))

        assert str(one.next()) == str(other.next()) == "insert after"


@pytest.mark.parametrize("event", ["insert", "update", "delete"])
def test_O30_O31_the_bytes_of_a_block(feed: Feed, event: str) -> None:
    """Id, event, data, an empty line; the keys of data in oplog's order."""
    with feed.listening() as listener:
        fields = {"timestamp": "2026-11-20T17:19:10.940Z", "parents": ["user/U1", "user/U1"]}
        (event_id,) = feed.post(op("X1", event, **fields))
        listener.next()

    assert re.fullmatch("[0-9a-f]{24}", event_id)
    assert listener.raw.decode() == (
        f"id: {event_id}\nevent: {event}\n"
        'data: {"timestamp":"2026-11-20T17:19:10.94Z","parents":["user/U1","user/U1"],'
        '"type":"video","id":"X1"}\n\n'
    )


def test_O32_refs(owned: dict[str, Feed]) -> None:
    """Last in the data, on rows and operations; not escaped, replaced in one pass."""
    feed = owned["refs"]
    feed.post(op("a/b &{{type}}"))
    feed.settle()
    with feed.listening() as listener:
        feed.post(op("x1"))
        live = listener.next()
    row = next(block for block in feed.copied() if block.data.get("id", "").startswith("a"))

    assert row.text.endswith(',"ref":"http://api/video/a/b &{{type}}?a/b &{{type}}"}')
    assert live.text.endswith(',"id":"x1","ref":"http://api/video/x1?x1"}')


def test_O32_refs_on_a_websocket(host: Server, owned: dict[str, Feed]) -> None:
    """The same refs as on a stream: in the copy and in pushed events."""
    feed = owned["websocket"]
    feed.post(op("a"))
    with connect(host.ws_url) as client:
        client.send(json.dumps({"action": "subscribe", "feed": feed.name, "from": "0"}))
        refs: list[str] = []
        while "/video/b" not in refs:
            message = json.loads(client.recv(timeout=PATIENCE_S))
            refs += [each["data"]["ref"] for each in message.get("events", ()) if "data" in each]
            if message.get("reply") == "subscribed":
                feed.post(op("b"))

    assert set(refs) == {"/video/a", "/video/b"}


def test_O32_no_ref_without_an_object_url(shared: Feed) -> None:
    """Not even the one that was sent."""
    with shared.listening() as listener:
        shared.post(op("x1", ref="http://mine"))

        assert "ref" not in listener.next().data


def test_O33_an_event_arrives_soon(feed: Feed) -> None:
    """The best of five: the others measure the machine."""
    delays = []
    with feed.listening() as listener:
        for number in range(5):
            feed.post(op(f"x{number}"))
            acknowledged = time.monotonic()
            listener.next()
            delays.append(time.monotonic() - acknowledged)

    assert min(delays) < SOON_S


def test_O35_a_stream_is_nothing_but_whole_blocks(feed: Feed) -> None:
    """Whatever names hold: three lines a block, LF alone, nothing else."""
    names = ["a\r\nb", "\n\nid: 1\n\n", "data: x", "retry: 1", ":", "a\u2028b\u0085c", "ä"]
    with feed.listening() as listener:
        feed.post(*map(op, names))
        heard = [block.data["id"] for block in listener.take(len(names))]

    assert heard == names
    assert b"\r" not in listener.raw
    assert len(listener.raw.decode().splitlines()) == 4 * len(names)
    assert listener.raw.startswith(b"id: ")


@pytest.mark.parametrize(
    "sent",
    [
        "abcd",
        "12345678901234",
        "-1234567890123",
        "a" * 23,
        "a" * 25,
        "g" * 24,
        "1e3",
        "0x10",
        "1 2",
        "1.0",
        "+",
        "--1",
        "null",
        "0" * 23,
    ],
)
def test_O36_what_is_no_id(shared: Feed, sent: str) -> None:
    """400, with the rule."""
    answer = ask(shared.port, "GET", shared.path, {"accept": STREAM, "last-event-id": sent})

    assert refused(answer, 400, "invalid_cursor")


def test_O37_an_id_in_upper_case(feed: Feed) -> None:
    """Means the same."""
    ids = feed.post(op("a"), op("b"))
    assert any(letter in "abcdef" for letter in ids[0])
    with feed.listening(ids[0].upper()) as listener:
        assert str(listener.next()) == "insert b"


def test_O13_a_feed_that_answers_as_oplog(owned: dict[str, Feed]) -> None:
    """With `compat=oplog`: no body in any error, and 503 for an operation that is wrong."""
    feed = owned["oplog"]
    wrong = feed.send(b"{")
    stream = ask(feed.port, "GET", feed.path, {"accept": STREAM, "last-event-id": "abcd"})
    method = ask(feed.port, "PUT", feed.path)

    assert [(each.status, each.body) for each in (wrong, stream, method)] == [
        (503, b""),
        (400, b""),
        (405, b""),
    ]
    assert feed.send(b"{}", content_type="text/plain").status == 415
    assert all(carries_oplogs_headers(each) for each in (wrong, stream, method))


def test_O34_a_quiet_stream_is_spoken_to(heartbeats: Heartbeats) -> None:
    """A comment in time, and nothing else; the stream was opened with the first test."""
    deadline = heartbeats.moments[0] + 3 * HEARTBEAT_S
    while len(heartbeats.moments) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)

    assert len(heartbeats.moments) >= 2
    gaps = [
        later - earlier
        for earlier, later in zip(heartbeats.moments, heartbeats.moments[1:], strict=False)
    ]
    assert min(gaps) <= HEARTBEAT_S  # the others measure the machine
    assert set(heartbeats.raw.decode().splitlines()) == {":"}


HOSTILE = "<é&\u2028\u0085>\r\n\\"  # line ends of every kind must stay inside one data line
CLIENT_PATIENCE_S = 180.0
COUNT = 1200  # more than one page holds, and more than one chunk
Seen = tuple[str, str, Any]
ROOT = Path(__file__).parents[3]


def _by_httpx_sse(url: str, last_id: str) -> Iterator[Seen]:
    with (
        httpx.Client(timeout=CLIENT_PATIENCE_S) as client,
        connect_sse(client, "GET", url, headers={"Last-Event-ID": last_id}) as source,
    ):
        for event in source.iter_sse():
            yield event.id, event.event, json.loads(event.data)


def _by_sseclient(url: str, last_id: str) -> Iterator[Seen]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last_id}
    with httpx.stream("GET", url, headers=headers, timeout=CLIENT_PATIENCE_S) as answer:
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
