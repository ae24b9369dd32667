"""Faults of proxies and restarting servers, for each client and example that we ship.

Each client reads or posts everything once, or ends with an error that names the cause.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from tests.compat.oplog.feed import Feed, op
from tests.unit.client.command import TIDINGS
from tests.world import installing
from tests.world.faults import FAULTS, FaultyProxy
from tidings.client import Consumer, Fold, Listener, Poster, Worker, follow
from tidings.client.errors import ClientError
from tidings.client.feed_api import NamedConsumers
from tidings.client.listener import Ended, Live, Object
from tidings.core.model.cursors import Place, parse
from tidings.server.running import Server
from tidings.spark.http_backend import HttpBackend
from tidings.spark.options import Where

pytestmark = [pytest.mark.npm, pytest.mark.curl]
NAMES = [f"x{number:02}-{secrets.token_hex(8)}" for number in range(20)]  # more than a cut has
LAST = NAMES[-1]
WITHIN_S = 180.0
PACKAGE = installing.ROOT / "clients" / "javascript" / "src" / "index.js"
CURL = installing.ROOT / "examples" / "curl"
NODE = ("node", "--experimental-websocket", "--experimental-eventsource", "--no-warnings")
Transport = Literal["ws", "sse"]


@dataclass(frozen=True, slots=True)
class Case:
    """A client of the proxy at *url*; the feed `main` has NAMES after *start*."""

    url: str
    start: str
    name: str
    folder: str


def _until_last(names: Iterable[str]) -> list[str]:
    found = []
    for name in names:
        found.append(name)
        if name == LAST:
            break
    return found


def _follow(case: Case, transport: Transport) -> list[str]:
    events = follow(case.url, transport=transport, cursor=case.start)
    return _until_last(event.data["id"] for event in events)


def _consume(case: Case, transport: Transport) -> list[str]:
    with Consumer(case.url, transport=transport, cursor=case.start) as consumer:
        return _until_last(each.data["id"] for each in consumer)


def _consume_async(case: Case) -> list[str]:
    async def read() -> list[str]:
        found: list[str] = []
        async with Consumer(case.url, transport="sse", cursor=case.start) as consumer:
            while LAST not in found:
                found.append((await anext(consumer)).data["id"])
        return found

    return asyncio.run(read())


def _work(case: Case, transport: Transport) -> list[str]:
    found: list[str] = []
    with Worker(case.url, case.name, transport=transport) as worker:

        def write(messages: Sequence[Any]) -> None:
            found.extend(each.data["id"] for each in messages)
            if LAST in found:
                worker.stop()

        worker.run(write)
    return found


def _post(case: Case) -> list[str]:
    with Poster(case.url, "posted") as poster:
        poster.post([op(case.name)])
    return []


def _fold(case: Case) -> list[str]:
    with Fold(case.url) as fold:
        return sorted(held.data["id"] for held in fold.held.values() if held.data)


def _read_with_spark(case: Case) -> list[str]:
    """Read as a batch query: its planning, and then one task."""
    backend, first = HttpBackend(Where(url=case.url)), parse(case.start)
    assert isinstance(first, Place)
    assert backend.place_or_copy(first) == first
    assert not backend.is_lost(first)
    last = backend.ends().frontier
    backend.stretches(first, last, 3)
    lines = (line for piece in backend.log(first, last) for line in piece.lines)
    return _until_last(json.loads(line)["id"] for line in lines)


def _listen(case: Case) -> list[str]:
    found: list[str] = []
    resources = {"video": ["x"]}
    with Listener(case.url, instance="i", service="s", resources=resources) as listener:
        for each in listener:
            if isinstance(each, Object):
                found.append(each.fields["id"])
            elif isinstance(each, Ended):
                found = []
            elif isinstance(each, Live):
                break
    return sorted(found)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    if done.returncode:
        raise ClientError(done.stderr.strip())
    return done.stdout


def _tail(case: Case) -> list[str]:
    options = ["--transport", "sse", "--from", case.start, "--count", str(len(NAMES)), "--json"]
    lines = _run(*TIDINGS, "tail", case.url, *options).splitlines()
    return [json.loads(line)["data"]["id"] for line in lines]


def _post_with_command(case: Case) -> list[str]:
    _run(*TIDINGS, "post", "insert", "video", case.name, "--url", case.url, "--feed", "posted")
    return []


def _follow_with_curl(case: Case) -> list[str]:
    file = Path(case.folder) / case.name
    file.write_text(case.start)
    with subprocess.Popen(
        ["sh", str(CURL / "follow.sh"), f"{case.url}ops", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        events = (json.loads(line.partition("\t")[2]) for line in process.stdout)
        found = _until_last(event["id"] for event in events)
        if not found:
            raise ClientError(process.stderr.read())
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return found


def _post_with_curl(case: Case) -> list[str]:
    _run("sh", str(CURL / "post.sh"), f"{case.url}feeds/posted/ops", "insert", "video", case.name)
    return []


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of client: a function, or the name of a client in `faults.mjs`.

    The faults are at requests with *where* in their address. *refuses* has the texts of its
    errors, by fault. Commands start slowly, so they meet only a few of the *faults*.
    """

    run: Callable[[Case], list[str]] | str
    where: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict)
    faults: Collection[str] = tuple(FAULTS)


# An answer 200 without a stream comes from another program, so that waiting does not help.
NO_STREAM = {
    "empty": "without a type, not an event stream",
    "html": "text/html, not an event stream",
    "other": "application/json, not an event stream",
    "truncated-json": "application/json, not an event stream",
}
KINDS = {
    "follow-sse": Kind(lambda case: _follow(case, "sse"), refuses=NO_STREAM),
    "follow-ws": Kind(lambda case: _follow(case, "ws")),
    "consumer-sse": Kind(lambda case: _consume(case, "sse"), refuses=NO_STREAM),
    "consumer-ws": Kind(lambda case: _consume(case, "ws")),
    "async-consumer": Kind(_consume_async, refuses=NO_STREAM),
    "worker-sse": Kind(lambda case: _work(case, "sse"), "/ops", NO_STREAM),
    "worker-ws": Kind(lambda case: _work(case, "ws"), "/ws"),
    "worker-lease": Kind(lambda case: _work(case, "ws"), "/lease"),
    "worker-ack": Kind(lambda case: _work(case, "ws"), "/ack"),
    "worker-release": Kind(lambda case: _work(case, "ws"), "/release"),
    "fold": Kind(_fold),
    "fold-rows": Kind(_fold, "/rows?bucket=7"),
    "listener": Kind(_listen),
    "listener-objects": Kind(_listen, "/objects"),
    "poster": Kind(_post),
    "spark-status": Kind(_read_with_spark, "/status"),
    "spark-log": Kind(_read_with_spark, "/log"),
    "spark-stream": Kind(_read_with_spark, "/ops", NO_STREAM),
    "js-feed-sse": Kind("feed-sse", refuses=NO_STREAM),
    # Node's WebSocket does not report an end within a frame; the client waits 30 seconds then.
    "js-feed-ws": Kind("feed-ws", faults=FAULTS.keys() - {"cut"}),
    "js-copy": Kind("copy"),
    "js-copy-rows": Kind("copy", "/rows?bucket=7"),
    "js-listener": Kind("listener", faults=FAULTS.keys() - {"cut"}),
    "js-listener-objects": Kind("listener", "/objects"),
    "js-post": Kind("post"),
    # Node's EventSource reports a network error before it is closed, unlike a browser's.
    "page": Kind("page", faults=FAULTS.keys() - {"closed"}),
    "follow.sh": Kind(
        _follow_with_curl,
        refuses={
            "empty": "not an event stream: 200",
            "html": "not an event stream: 200 Content-Type: text/html",
            "other": "not an event stream: 200 Content-Type: application/json",
            "truncated-json": "not an event stream: 200 Content-Type: application/json",
        },
    ),
    "post.sh": Kind(_post_with_curl),
    "tail": Kind(_tail, refuses={"html": NO_STREAM["html"]}, faults=("502", "cut", "html")),
    "post": Kind(_post_with_command, faults=("502", "cut", "html")),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--feeds", "main,posted") as running:
        yield running


@pytest.fixture(scope="module")
def start(server: Server) -> str:
    feed = Feed(server.port, "main")
    route = {"resource": "video", "subResources": ["x"], "bootstrapRoute": "/feeds/main/objects"}
    httpx.put(f"{server.url}feeds/main", json={"resources": [route], "max_age": 28_800})
    (start,) = feed.post(op("before", "delete"))
    for name in NAMES:
        feed.post(op(name))
    feed.settle()
    return start


def _outcome(run: Callable[[Case], list[str]], case: Case) -> list[str] | str:
    try:
        return run(case)
    except ClientError as error:
        return str(error)


def _outcomes(kind: Kind, cases: Sequence[Case]) -> list[list[str] | str]:
    run = kind.run
    if isinstance(run, str):
        text = json.dumps([asdict(case) for case in cases])
        script = str(installing.CLIENTS / "faults.mjs")
        found: list[list[str] | str] = json.loads(
            _run(*NODE, script, str(PACKAGE), run, text, LAST)
        )
        return found
    with ThreadPoolExecutor(len(cases)) as pool:
        return [*pool.map(lambda case: _outcome(run, case), cases)]


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_loses_and_repeats_nothing(
    name: str, server: Server, start: str, tmp_path: Path
) -> None:
    """All faults at once, each in front of a client of its own."""
    kind = KINDS[name]
    with ExitStack() as stack, NamedConsumers(server.url) as api:
        cases = []
        for fault in kind.faults:
            proxy = stack.enter_context(FaultyProxy(server.port, [fault], kind.where))
            cases.append(Case(proxy.url, start, f"{name}-{fault}", str(tmp_path)))
            if name.startswith("worker"):
                api.register(cases[-1].name, {"from": start})
        found = dict(zip(kind.faults, _outcomes(kind, cases), strict=True))
    posts = "post" in name
    for fault, text in kind.refuses.items():
        assert text in found.pop(fault), fault
    assert found == dict.fromkeys(found, [] if posts else NAMES)
    if posts:
        with NamedConsumers(server.url, "posted") as api:
            entries = api.log({"from": api.log()["oldest"]})["entries"]
        counts = Counter(each["data"]["id"] for each in entries)
        assert {counts[case.name] for case in cases} == {1}


@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_no_client_hurries(server: Server, start: str, transport: Transport) -> None:
    """It pauses after streams that end at once, and as long as the server asks for."""
    delays: list[float] = []
    faults = ["short"] * 4 + ["later"]
    with FaultyProxy(server.port, faults) as proxy:
        events = follow(proxy.url, transport=transport, cursor=start, wait=delays.append)
        next(events)
    assert [least <= delay for least, delay in zip((1, 2, 4, 8, 30), delays, strict=True)] == [
        True
    ] * 5
