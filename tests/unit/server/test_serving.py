"""The running server: which requests it accepts, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.unit.server.test_crashes import FEED, hosted
from tidings.client.cli.main import main
from tidings.client.feed_api import basic
from tidings.core.changeagent.config import Purges
from tidings.core.model.feeds import Retention
from tidings.http.endpoints import status
from tidings.server.running import NotReady, Server

OPTIONS = ("--feeds", "main,other")  # of the fixture `server`
OPERATION = {"event": "update", "type": "video", "id": "x32"}
WITHIN_S = 180.0


def post(server: Server, headers: Mapping[str, str] = {}, path: str = "/") -> httpx.Response:
    return httpx.post(server.url.rstrip("/") + path, json=OPERATION, headers=dict(headers))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "feed.example"}, 421),
        ({"origin": "https://page.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "localhost:1"}, 204),
    ],
)
def test_a_strangers_page_is_refused(
    server: Server, headers: Mapping[str, str], status: int
) -> None:
    """By its origin, and by a name that leads to this address (DNS rebinding)."""
    assert post(server, headers).status_code == status


def test_a_repeated_idempotency_key_is_refused(server: Server) -> None:
    """Neither key is used, also if both are the same."""
    for keys in ("ab", "aa"):
        headers = [("idempotency-key", key) for key in keys]
        answer = httpx.post(server.url, json=OPERATION, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            400,
            "invalid_idempotency_key",
        )
    assert post(server, {"idempotency-key": "a"}).status_code == 204


def test_a_status_names_only_the_feeds_of_the_configuration(server: Server) -> None:
    """It needs no credential; the list of feeds does."""
    assert httpx.put(f"{server.url}feeds/secret").status_code == 201
    report = httpx.get(f"{server.url}status").json()
    assert report.get("feeds") == ["main", "other"], report


def test_a_strangers_page_is_refused_in_the_form_of_the_path(server: Server) -> None:
    """An error on a path of changeagent is a text (PROTOCOL 12.8)."""
    for path in ("/changes", "/feeds/main/changes"):
        answer = post(server, {"host": "feed.example"}, path)
        assert (answer.status_code, type(answer.json()["error"])) == (421, str)


def test_a_websocket_of_a_strangers_page_is_refused(server: Server) -> None:
    """The handshake is refused."""
    handshake = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "origin": "https://page.example",
    }
    answer = httpx.get(f"{server.url}ws", headers=handshake)

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")


def test_a_websocket_without_upgrade_is_426(server: Server) -> None:
    """P8.11: a proxy may not forward the header; a wrong path is 404."""
    for path in ("ws", "ws?changefeed=main"):
        for answer in (httpx.get(server.url + path), httpx.head(server.url + path)):
            assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket"), path
        assert httpx.get(server.url + path).json()["error"]["code"] == "upgrade_required"
    assert httpx.get(f"{server.url}wss").status_code == 404
    assert httpx.post(f"{server.url}ws").status_code == 404


def test_an_open_feed_is_not_served_to_the_network() -> None:
    """Without a password it is closed on every address but the loopback's."""
    with Server("--host", "0.0.0.0") as running:
        answer = post(running)
        assert answer.status_code == 401
        # The server warns before the first request, with a command for its own folder.
        command = f"tidings feed password read --feed main --data {running.data}"
        assert "the feed main is closed" in running.errors() and command in running.errors()
        hint = answer.json()["error"]["message"].split("`")[1]
        words = hint.replace("FOLDER", str(running.data)).split()[1:]
        done = CliRunner().invoke(main, [*words, "--generate", "--json"])
        assert done.exit_code == 0, done.output
        headers = basic(json.loads(done.stdout)["password"])
        assert post(running, headers=headers).status_code == 204


def test_a_metric_that_is_measured_is_a_gauge_with_its_labels() -> None:
    """Show the lag of a follower and of a consumer by name; never add up what sweeps observe."""
    with Server() as running:
        post(running)
        consumer = httpx.put(f"{running.url}feeds/main/consumers/c1", json={"from": "oldest"})
        assert consumer.status_code < 300, consumer.text
        lines = httpx.get(f"{running.url}metrics").text.splitlines()

    assert "# TYPE tidings_consumer_lag gauge" in lines
    assert 'tidings_consumer_lag{feed="main",consumer="c1"} 1' in lines
    assert 'tidings_consumer_fell_off{feed="main",consumer="c1"} 0' in lines
    assert any(
        line.startswith('tidings_follower_lag{feed="main",follower="state"}') for line in lines
    )
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    named = (re.split("[{ ]", line)[0] for line in lines if line[0] != "#")
    assert helped == typed == {re.sub("_(bucket|sum|count)$", "", name) for name in named}


def test_the_live_page_is_served(server: Server) -> None:
    """Its headers keep it out of a foreign frame."""
    page = httpx.get(f"{server.url}console/")
    client = httpx.get(f"{server.url}console/client/reader.js")

    assert page.status_code == 200 and "<html" in page.text
    assert client.status_code == 200 and "export class Reader" in client.text
    assert client.headers["content-type"] == "text/javascript; charset=utf-8"
    assert page.headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/console/", "<p>"),
        ("/console/index.html", "<p>"),
        ("/console/app.js", "1"),
        ("/console/client/feed.js", "2"),
        ("/console/client/feed.d.ts", None),
        ("/console/client/app.js", None),
        ("/console/client/../secret.js", None),
        ("/console/clients/javascript/src/feed.js", None),
        ("/console/secret.txt", None),
        ("/console/..%2Fsecret.js", None),
        ("/console/../secret.js", None),
        ("/console/absent.js", None),
        ("/console.js", None),
    ],
)
def test_the_console_serves_its_files_and_no_others(
    path: str, text: str | None, tmp_path: Path
) -> None:
    """Only plain names of known types inside the folder, and of the client that it imports."""
    folder, client = tmp_path / "console", tmp_path / status.CLIENT
    folder.mkdir()
    client.mkdir(parents=True)
    (client / "feed.js").write_text("2")
    (client / "feed.d.ts").write_text("no")
    (folder / "index.html").write_text("<p>")
    (folder / "app.js").write_text("1")
    (folder / "secret.txt").write_text("no")
    (tmp_path / "secret.js").write_text("no")
    page = status.live_page(folder, path)

    assert (page.body if page else None) == text


BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_9_8_a_browser_that_opens_the_root_gets_the_console(server: Server) -> None:
    """With the query string; other clients get a stream, as before."""
    page = httpx.get(f"{server.url}?types=file", headers=BROWSER, follow_redirects=True)
    head = httpx.head(server.url, headers=BROWSER)

    assert str(page.url) == f"{server.url}console/?types=file" and "<html" in page.text
    assert (head.status_code, head.headers["location"]) == (307, "console/")
    plain = httpx.Client()
    del plain.headers["accept"]  # as Go's client
    for headers in ({"accept": "*/*"}, {}, {"accept": ""}):
        with plain.stream("GET", server.url, headers=headers) as stream:
            assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert plain.get(f"{server.url}ops").status_code == 406
    alone = plain.get(server.url, headers={"accept": "text/html"})
    assert (alone.status_code, alone.headers["location"]) == (307, "console/")


def test_half_a_body_is_none(server: Server) -> None:
    """A client that leaves within its body has posted nothing."""
    head = httpx.get(f"{server.url}status").json()["head"]
    body = json.dumps(OPERATION).encode()
    start = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{start}content-length: {len(body)}\r\n\r\n".encode() + body[:9])
    time.sleep(0.2)

    assert httpx.get(f"{server.url}status").json()["head"] == head


def test_a_second_server_on_the_data_is_refused(server: Server) -> None:
    """It prints one sentence, and the first server continues."""
    with pytest.raises(NotReady, match=r"^tidings serve: .*another process serves this file$"):
        Server(data=server.data).start()
    assert post(server).status_code == 204


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    """The exit code is 0, soon; the acknowledged operations are there after a restart."""
    with Server(data=tmp_path) as running:
        assert post(running).status_code == 204
        headers = {"accept": "text/event-stream"}
        with httpx.stream("GET", running.url, headers=headers, timeout=WITHIN_S) as stream:
            began = time.monotonic()
            assert running.stop() == 0
            assert time.monotonic() - began < WITHIN_S / 2
            with pytest.raises(httpx.HTTPError):
                stream.read()
                raise httpx.ReadError("the stream ended in order")
        running.start()
        assert httpx.get(f"{running.url}status").json()["head"] == 1


def operate(server: Server, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, *server.locator])


def test_8_10_websockets_end_with_the_server(tmp_path: Path) -> None:
    """P8.10: closed with 1001, so that their clients come again."""
    with Server(data=tmp_path) as running, connect(f"ws{running.url[4:]}ws") as client:
        client.send('{"action":"subscribe"}')
        assert "subscribed" in client.recv(WITHIN_S, decode=True)
        assert running.stop() == 0
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WITHIN_S)

    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001


def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    """It serves a proxy on the same machine; a stale socket is replaced."""
    at = tmp_path / "feed.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(at))
    with Server("--unix-socket", str(at), "--setting", "TIDINGS_OPEN=true"):
        assert at.stat().st_mode & 0o777 == 0o666  # a proxy usually runs as another user
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(at))) as client:
            assert client.post("http://localhost/", json=OPERATION).status_code == 204
        with pytest.raises(NotReady, match="another process listens at"):
            Server("--unix-socket", str(at)).start()


def test_it_starts_without_aws() -> None:
    """Neither boto3 nor its dependencies are imported."""
    code = "import sys, tidings.server.serving; print([m for m in sys.modules if 'boto' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_signal_while_it_starts_ends_it(tmp_path: Path) -> None:
    """With code 0, as at any other time."""
    command = [sys.executable, "-m", "tidings.server", "--port", "0", "--data", str(tmp_path / "d")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


def test_the_demo_ends_with_a_killed_server(tmp_path: Path) -> None:
    """It posts nothing to the next server on the same port."""
    with Server("--demo", data=tmp_path) as running:
        deadline = time.monotonic() + WITHIN_S
        while not httpx.get(f"{running.url}status").json()["head"]:
            assert time.monotonic() < deadline
        running.kill()
        again = Server(data=tmp_path)
        again.port = running.port
        with again:
            url = f"http://127.0.0.1:{running.port}/status"
            head = httpx.get(url).json()["head"]
            time.sleep(0.5)
            assert httpx.get(url).json()["head"] == head


def test_a_backup_has_what_was_acknowledged(tmp_path: Path) -> None:
    """The server may run or not; an existing file is never replaced."""
    kept, again = tmp_path / "kept.db", tmp_path / "again.db"
    with Server(data=tmp_path / "data") as running:
        assert post(running).status_code == 204
        assert operate(running, "backup", str(kept)).exit_code == 0
        assert post(running).status_code == 204
        refused = operate(running, "backup", str(kept))
        assert refused.exit_code == 1 and "File exists" in refused.stderr
        running.stop()
        assert operate(running, "backup", str(again)).exit_code == 0
    for file, operations in ((kept, 1), (again, 2)):
        restored = tmp_path / file.stem
        restored.mkdir()
        file.rename(restored / "feed.db")
        with Server(data=restored) as running:
            status = httpx.get(f"{running.url}status").json()
            # A restored log never reuses a page number.
            assert status["events_ingested"] == operations and status["head"] > operations
    assert not list(tmp_path.glob("*.part"))


def test_a_configuration_takes_effect_at_once(tmp_path: Path) -> None:
    """Retention reads it from the cache of this process, which the PUT has to update."""

    async def main() -> None:
        async with hosted(tmp_path / "feed.db") as (host, app):
            purge = Purges(host.documents)
            assert await asyncio.to_thread(purge, FEED) is None
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                answer = await client.put(
                    "/config",
                    content="minPurgeRecords: 5\nminPurgeDuration: 1h",
                    headers={"content-type": "application/yaml"},
                )
            assert answer.status_code == 200, answer.text
            assert await asyncio.to_thread(purge, FEED) == Retention(3_600_000, 5)

    asyncio.run(main())
