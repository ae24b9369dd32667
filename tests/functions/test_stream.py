"""stream: the ASGI app with Lambda response streaming."""

from __future__ import annotations

import asyncio
import json

import pytest

from functions.ingest.handler import handle as ingest
from tests.functions.cloud import Cloud, event, give_key, restart
from tests.functions.streaming import FROM_THE_FIRST, SSE, Message, read
from tidings.aws import clients
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.aws.telemetry import asgi_edge
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import KeyIssuer, KeyStore, parse
from tidings.core.catchup.sse import RESUME, Chunk, Stream
from tidings.core.version import VERSION
from tidings.http import asgi, settings
from tidings.http.streams import sse
from tidings.http.streams.sse import LAST_MS


def test_a_stream_sends_blocks_from_the_cursor_on(cloud: Cloud) -> None:
    """Status and headers first, then the log as blocks of three lines."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    status, headers, text = read("/", headers=FROM_THE_FIRST, until='"id":"2"')

    assert status == 200
    assert headers == {
        "server": f"tidings/{VERSION}",
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-store, must-revalidate, no-transform",
        "x-accel-buffering": "no",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "allow, last-event-id, retry-after",
        "last-event-id": "0000000000000000007fffff",
    }
    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    assert blocks[0].pop(0) == f"retry: {limits.STREAM_RESUME_MS}"
    assert [block[1] for block in blocks] == ["event: insert", "event: insert", "event: delete"]
    assert all(
        [line.partition(":")[0] for line in block] == ["id", "event", "data"] for block in blocks
    )


@pytest.mark.parametrize("context", ["{", "[]", '{"deadline":null}', '{"deadline":1e999}'])
def test_an_unknown_deadline_is_passed_over(cloud: Cloud, context: str) -> None:
    """A header with invalid content neither fails a stream nor ends it early."""
    ingest(event("http_post"), None)
    headers = {**FROM_THE_FIRST, "x-amzn-lambda-context": context}
    status, _, text = read("/", headers=headers, until="\n\n")

    assert status == 200 and text.endswith("\n\n")


def test_a_stream_ends_before_the_functions_time(cloud: Cloud) -> None:
    """Between two blocks, with enough time left for a large one."""
    ingest(event("http_post"), None)
    deadline = json.dumps({"deadline": now_ms() + LAST_MS + 1_000})
    headers = {"accept": "*/*", "x-amzn-lambda-context": deadline}
    started = now_ms()
    read("/", headers=headers)

    assert now_ms() - started >= 500


def test_a_stream_lasts_as_long_as_its_stage_says(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7.4: Lambda reports no disconnected reader, so nothing else would end its stream."""
    monkeypatch.setattr(settings, "parse_integer", lambda text, *_: int(text))
    monkeypatch.setenv("TIDINGS_STREAM_SECONDS", "1")
    restart()
    deadline = json.dumps({"deadline": now_ms() + 900_000})
    started = now_ms()
    asked = {"accept": "*/*", "x-amzn-lambda-context": deadline}
    status, _, text = read("/", headers={**asked, "last-event-id": "0000000000000000007fffff"})

    assert (status, text) == (200, "")
    assert now_ms() - started >= 1_000


def test_7_4_a_stream_that_will_end_tells_first_where_it_begins(cloud: Cloud) -> None:
    """A client without a cursor would miss what is posted before it reconnects."""
    ingest(event("http_post"), None)
    deadline = json.dumps({"deadline": now_ms() + LAST_MS + 200})
    _, headers, text = read("/", headers={**SSE, "x-amzn-lambda-context": deadline})

    start = headers["last-event-id"]
    assert text == f"retry: 500\nid: {start}\nevent: live\ndata: {{}}\n\n"


def test_a_reader_who_takes_nothing_is_cut(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a client that reads nothing soon after the stream's time, before Lambda ends it."""
    ingest(event("http_post"), None)
    monkeypatch.setattr(settings, "parse_integer", lambda text, *_: int(text))
    monkeypatch.setattr(sse, "LAST_MS", 500)
    monkeypatch.setenv("TIDINGS_STREAM_SECONDS", "1")
    restart()
    started = now_ms()
    status, _, _ = read("/", headers=FROM_THE_FIRST, stuck_at="")

    assert status == 200
    assert now_ms() - started >= 1_500


def test_a_stream_ends_before_lambda_cuts_it(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any stream ends, between two blocks: a resumed one gets the rest, and nothing again."""
    ingest(event("http_post"), None)
    ingest(event("http_post_to_feed"), None)
    told = dict(FROM_THE_FIRST)
    whole = read("/", headers=told, until='"id":"2"')[2].removeprefix(RESUME)
    monkeypatch.setattr(limits, "PIECE_CHARS", 1)
    monkeypatch.setattr(limits, "STREAM_BYTES_MAX", 1)
    context = {"x-amzn-lambda-context": json.dumps({"deadline": now_ms() + 600_000})}

    texts: list[str] = []
    while "".join(texts) != whole:
        texts.append(read("/", headers={**told, **context})[2])
        assert texts[-1].startswith(RESUME)  # each stream says so
        texts[-1] = texts[-1].removeprefix(RESUME)
        assert whole.startswith("".join(texts)) and texts[-1].endswith("\n\n")
        last = texts[-1].rstrip("\n").rpartition("\n\n")[2]
        told["last-event-id"] = last.partition("\n")[0].removeprefix("id: ")
    assert len(texts) > 1


def test_a_preflight_is_answered_for_the_origins_of_the_setting(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the app itself: a function URL has no gateway for it."""
    monkeypatch.setenv("TIDINGS_CORS_ORIGINS", "https://a.example,https://b.example")
    restart()
    told = {
        origin: read("/ops", headers={"origin": origin}, method="OPTIONS")
        for origin in ("https://b.example", "https://c.example")
    }

    assert [status for status, _, _ in told.values()] == [204, 204]
    listed, other = (headers for _, headers, _ in told.values())
    assert listed["access-control-allow-origin"] == "https://b.example"
    assert listed["access-control-allow-methods"] == "GET, OPTIONS"
    assert {"authorization", "last-event-id"} <= set(
        listed["access-control-allow-headers"].split(", ")
    )
    assert "access-control-allow-origin" not in other
    assert (listed["vary"], other["vary"]) == ("Origin", "Origin")


def test_what_is_counted_is_written_before_the_answer_ends(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the last piece Lambda may stop the process, and nothing else would write it."""
    written: list[str] = []

    async def answer(scope: Message, receive: asgi.Receive, send: asgi.Send) -> None:
        stage().count("PartsBroken", 2)
        await asgi.send_head(send, 200, {})
        await asgi.send_body(send, "more", more=True)
        await asgi.send_body(send, "", more=False)

    async def send(message: Message) -> None:
        lines = capsys.readouterr().out.splitlines()
        written.append("".join(line for line in lines if "_aws" in json.loads(line)))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        await asgi_edge(answer)({"type": "http"}, receive, send)

    asyncio.run(ask())
    assert written[:2] == ["", ""]
    assert json.loads(written[2])["PartsBroken"] == [2]


def test_the_deployed_app_writes_what_it_counted(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream of a disconnected reader has ended, too."""
    ingest(event("http_post"), None)
    capsys.readouterr()
    stage().count("PartsBroken", 3)  # as the archive's reader does
    read("/", headers=FROM_THE_FIRST, until="event: insert")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["PartsBroken"] for line in lines if "PartsBroken" in line] == [[3]]


def test_17_7_a_stream_asks_behind_what_it_read(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading may take long: a key that ends in the meantime opens none of it."""
    monkeypatch.setattr(limits, "PROFILE_AGE_MS", 0)
    ingest(event("http_post"), None)
    given = parse(give_key(Role.READ))
    assert given is not None
    issuer = KeyIssuer(
        KeyStore(DynamoDBRecords(clients.dynamodb(), "control")), stage().profiles, now_ms
    )
    step = Stream.next

    def revoked_meanwhile(stream: Stream) -> Chunk:
        issuer.revoke("main", given.id)
        return step(stream)

    monkeypatch.setattr(Stream, "next", revoked_meanwhile)
    shown = {**FROM_THE_FIRST, "authorization": f"Bearer {given.encode()}"}
    assert read("/", headers=shown)[::2] == (200, "")


def test_a_stream_that_ends_is_held_no_more(cloud: Cloud) -> None:
    """By a key with one stream: the next one is accepted at once, two at a time are not."""
    key = give_key(Role.READ, streams=1)
    shown = {**SSE, "authorization": f"Bearer {key}", "last-event-id": "0"}
    for _ in range(2):
        assert read("/", headers=shown, until="live")[0] == 200
    stage().streamer.open("main", "now", given=Credential(key))
    status, headers, _ = read("/", headers=shown, until="live")
    assert (status, headers["retry-after"]) == (429, str(limits.STREAM_HELD_RETRY_S))
