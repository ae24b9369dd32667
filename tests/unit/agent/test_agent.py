"""`tidings agent` as a process: in order, once, also if it is killed; its errors, and its page."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner

from tests.e2e import consumers
from tests.e2e.consumers import BEFORE_THE_FIRST
from tests.unit.agent.processes import Agent, Answer, Request, Running, Target, operation, running
from tidings.agent import command
from tidings.agent.queue import NAME
from tidings.server.running import Server

NDJSON = "application/x-ndjson"
OPLOG_FIELDS = {
    "status",
    "clients",
    "connections",
    "events_discarded",
    "events_error",
    "events_ingested",
    "events_received",
    "events_sent",
    "queue_max_size",
    "queue_size",
}


def _udp_and_http(agent: Agent, target: Target) -> None:
    """Datagrams of every kind, then the same port over HTTP."""
    agent.send(operation("a"), operation("b", Event="DELETE", type="Video", parents=["user/ann"]))
    target.until(lambda: target.ids == ["a", "b"])
    assert target.appended[1]["event"] == "delete"
    assert target.appended[1]["type"] == "video"
    assert agent.post(operation("c")).status_code == 204
    target.until(lambda: target.ids == ["a", "b", "c"])


def _junk(agent: Agent) -> None:
    before = agent.status()
    agent.send(b"junk", b"", b'{"event":"explode","type":"video","id":"x"}', b"[" * 5_000)
    after = agent.until(lambda status: bool(status["events_error"] >= before["events_error"] + 4))
    assert after["events_error"] == before["events_error"] + 4
    assert after["events_received"] == before["events_received"]
    assert "a datagram is not an operation" in agent.errors


def _large(agent: Agent, target: Target) -> None:
    for size in (1_024, 1_025, 65_000):
        bare = operation("large", data="")
        datagram = operation("large", data="x" * (size - len(bare)))
        assert len(datagram) == size
        agent.send(datagram)
    target.until(lambda: target.ids[-3:] == ["large"] * 3)


def test_O21_O22_O23_datagrams(agent: Agent, target: Target) -> None:
    """One datagram is one operation, on the port of HTTP; junk is an error and not received; a
    datagram may be as long as UDP allows.
    """
    before = agent.status()
    _udp_and_http(agent, target)
    _junk(agent)
    _large(agent, target)

    status = agent.until(lambda status: status["queue_size"] == 0)
    assert status["events_received"] == before["events_received"] + 6
    assert status["events_ingested"] == before["events_ingested"] + 6
    assert {request.path for request in target.requests} == {"/feeds/main/ops"}


def test_O25_order_over_both_ways(agent: Agent, target: Target) -> None:
    """Operations of one producer over UDP and HTTP arrive in its order, in batches."""
    before = agent.status()["events_received"]
    for n in range(0, 600, 3):
        agent.send(operation(n), operation(n + 1))
        if n % 60 == 0:
            sent = before + n + 2
            agent.until(lambda status, sent=sent: status["events_received"] == sent)  # type: ignore[misc]
            agent.post(operation(n + 2))
        else:
            agent.send(operation(n + 2))
    target.until(lambda: len(target.appended) == 600)

    assert target.ids == [str(n) for n in range(600)]
    assert len(target.requests) < 300


def test_posts(agent: Agent, target: Target) -> None:
    """P4.2 to P4.7: the agent answers as the feed itself does; a refused request queues nothing."""
    before = agent.status()
    many = b"\n".join(operation(n) for n in range(3))
    assert agent.post(many, NDJSON).status_code == 204
    assert agent.post(b"[" + operation("x") + b"," + operation("y") + b"]").status_code == 204
    accepted = agent.http.post(f"{agent.url}/ops", json=json.loads(operation("z")))
    assert accepted.status_code == 204
    assert accepted.headers["server"].startswith("tidings/")
    assert accepted.headers["cache-control"] == "no-cache, no-store, must-revalidate"
    target.until(lambda: target.ids == ["0", "1", "2", "x", "y", "z"])

    refused = agent.post(operation("a") + b"\n{}\n", NDJSON)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "line 2: event")
    cases: list[tuple[httpx.Response, int, str]] = [
        (agent.post(b"x" * 1_048_577), 413, "too_large"),
        (agent.post(operation("a"), "text/plain"), 415, "wrong_content_type"),
        (agent.http.post(f"{agent.url}/nope", content=b""), 404, "unknown_path"),
        (agent.http.put(agent.url, content=b""), 405, "wrong_method"),
        (agent.http.get(agent.url), 405, "wrong_method"),
        (agent.http.post(f"{agent.url}/status", content=b""), 405, "wrong_method"),
    ]
    for answer, status, code in cases:
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert cases[-1][0].headers["allow"] == "GET"
    after = agent.status()
    assert after["events_error"] == before["events_error"] + 2
    assert after["events_received"] == before["events_received"] + 6


ASKED_FOR_PAGES: Mapping[str, tuple[dict[str, str], int, str]] = {
    "a page elsewhere": ({"origin": "https://evil.example"}, 403, "foreign_origin"),
    "a page that says nothing": ({"sec-fetch-site": "cross-site"}, 403, "foreign_origin"),
    "a name that leads here": ({"host": "evil.example"}, 421, "unknown_host"),
}


@pytest.mark.parametrize("who", ASKED_FOR_PAGES)
def test_no_page_posts_with_the_password_behind_it(agent: Agent, target: Target, who: str) -> None:
    """A request that a page makes a browser of this machine send is refused, and queues nothing."""
    headers, status, code = ASKED_FOR_PAGES[who]
    before = agent.status()
    sent = {"content-type": "application/json", **headers}
    refused = agent.http.post(agent.url, content=operation("a"), headers=sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert agent.status()["events_received"] == before["events_received"]
    if "sec-fetch-site" not in headers:
        assert agent.http.get(f"{agent.url}/status", headers=headers).status_code == status


def _receive_later(queue: Path) -> None:
    """Change when operations were received, as if the clock had been two hours ahead."""
    with contextlib.closing(sqlite3.connect(queue)) as db, db:
        for table in ("chunks", "batches"):
            db.execute(f"UPDATE {table} SET received_ms = received_ms + 7200000")


def test_O24_a_full_queue(feed: Running, tmp_path: Path) -> None:
    """While the target is away, the queue fills; later datagrams are discarded and counted, invalid
    ones as well, and posts get 503. When the target is back, the queue is sent in order.
    """
    target = feed.target
    feed.close()
    with Agent(target.url, tmp_path, "--max-queued-events", "5") as agent:
        agent.send(*[operation(n) for n in range(7)], b"junk")
        agent.until(lambda status: status["events_discarded"] == 3)
        status = agent.until(lambda status: status["events_received"] == 5)
        assert (status["queue_size"], status["queue_max_size"]) == (5, 5)
        assert (status["events_discarded"], status["events_error"]) == (3, 0)
        refused = agent.post(operation("late"))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "unavailable"
        away = agent.until(lambda status: status["status"] == "away")
        assert away["last_error"]
        assert away["oldest_queued_ms"] >= 0
        _receive_later(tmp_path / "queue" / NAME)
        assert agent.status()["oldest_queued_ms"] == 0
        feed.open()
        target.until(lambda: len(target.appended) == 5)
        back = agent.until(lambda status: status["queue_size"] == 0 and status["status"] == "OK")
        assert back["events_ingested"] == 5

    assert target.ids == ["0", "1", "2", "3", "4"]


def test_W11_lost_answers(agent: Agent, target: Target) -> None:
    """A request that was appended without an answer, or not appended, is sent again unchanged."""
    answers = iter([Answer(503, "unavailable"), Answer(lost=True), Answer(500)])
    target.judge = lambda request: next(answers, Answer())
    agent.send(operation("a"))
    target.until(lambda: len(target.requests) == 4)
    agent.send(operation("b"))
    target.until(lambda: "b" in target.ids)

    assert target.ids == ["a", "b"]
    assert len({request.key for request in target.requests[:4]}) == 1
    assert agent.status()["retries"] >= 3


def test_the_same_request_after_a_kill(agent: Agent, target: Target) -> None:
    """It is killed while it waits for the answer: the next one sends the same key and content, then
    the datagrams that came later.
    """
    target.judge = lambda request: Answer(lost=True)
    assert agent.post(b"\n".join([operation("a"), operation("b")]), NDJSON).status_code == 204
    target.until(lambda: target.requests)
    agent.send(operation("c"), operation("d"))
    agent.until(lambda status: status["queue_size"] == 4)
    agent.kill()
    target.judge = lambda request: Answer()
    assert agent.start().endswith(" 4 operations queued\n")
    target.until(lambda: "d" in target.ids)

    assert target.ids == ["a", "b", "c", "d"]
    first, *_, again, last = target.requests
    assert (again.key, again.ids) == (first.key, first.ids) == (first.key, ["a", "b"])
    assert last.ids == ["c", "d"]


def test_a_dead_receiver_ends_the_agent(feed: Running, tmp_path: Path) -> None:
    """Otherwise datagrams would be lost; a supervisor starts the agent again."""
    with Agent(feed.target.url, tmp_path) as agent:
        pid = agent.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)

        assert agent.process.wait(60) == 1
        assert agent.errors == (
            "tidings agent: the receiving process has died; start the agent again\n"
        )


def test_W20_a_poisoned_operation_does_not_block(agent: Agent, target: Target) -> None:
    """Operations that the feed refuses go into a file; all others are appended in order."""

    def judge(request: Request) -> Answer:
        return Answer(400, "invalid_operation") if "poison" in request.ids else Answer()

    target.judge = judge
    before = agent.status()
    ids = [*map(str, range(10)), "poison", *map(str, range(10, 20))]
    agent.post(b"\n".join(map(operation, ids)), NDJSON)
    target.until(lambda: "19" in target.ids)

    assert target.ids == list(map(str, range(20)))
    status = agent.until(lambda status: status["queue_size"] == 0)
    assert status["status"] == "OK"
    for name, more in (("events_error", 1), ("events_refused", 1), ("events_ingested", 20)):
        assert status[name] == before[name] + more
    (kept,) = (agent.folder / "queue/refused.ndjson").read_text().splitlines()
    assert json.loads(kept)["id"] == "poison"
    assert "the feed refuses an operation" in agent.errors


def test_a_key_that_is_taken(agent: Agent, target: Target) -> None:
    """A 422 means that the key belongs to another request: the batch gets a new key."""
    answers = iter([Answer(422, "idempotency_key_reused")])
    target.judge = lambda request: next(answers, Answer())
    agent.send(operation("a"))
    target.until(lambda: target.ids == ["a"])

    assert len({request.key for request in target.requests}) == 2


@pytest.mark.parametrize(
    ("answer", "state"),
    [(Answer(401), "denied"), (Answer(404, "unknown_feed"), "refused"), (Answer(400), "refused")],
)
def test_W25_a_wrong_setting_loses_nothing_and_is_told(
    answer: Answer, state: str, agent: Agent, target: Target
) -> None:
    """A wrong password, feed or address is in the status and on stderr; the operations are kept and
    sent again.
    """
    target.judge = lambda request: answer
    agent.send(operation("a"))
    status = agent.until(lambda status: status["status"] != "OK")
    assert (status["status"], status["queue_size"]) == (state, 1)
    assert str(answer.status) in status["last_error"]
    target.judge = lambda request: Answer()
    target.until(lambda: target.ids == ["a"])
    assert re.search(r"/feeds/main/ops: .*; 1 queued, trying again", agent.errors)


def test_W22_the_password_is_sent_and_shown_nowhere(feed: Running, tmp_path: Path) -> None:
    """It is sent as Basic with an empty user, and is not in /status, in the output, or in the
    receiver.
    """
    environment = {**os.environ, "TIDINGS_PASSWORD": "swordfish"}
    feed.target.judge = lambda request: Answer(401)
    with Agent(feed.target.url, tmp_path, "--drain-seconds", "0", env=environment) as agent:
        agent.send(operation("a"))
        status = agent.until(lambda status: status["status"] == "denied")
        pid = agent.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        receiver = Path(f"/proc/{child}/environ").read_text()
        _, said = agent.stop()
        assert "swordfish" not in json.dumps(status) + said + agent.errors + receiver

    assert feed.target.requests[0].authorization == "Basic OnN3b3JkZmlzaA=="


def test_O63_status_has_oplogs_fields(agent: Agent) -> None:
    """The ten, and what an operator asks next; nothing of the environment or command line."""
    answer = agent.http.get(f"{agent.url}/status")
    status = answer.json()

    assert "access-control-allow-origin" not in answer.headers  # a page elsewhere reads nothing
    assert set(status) >= OPLOG_FIELDS
    assert status["status"] == "OK"
    assert status["queue_max_size"] == 100_000
    assert status["target"].endswith("/feeds/main/ops")
    assert not {"cmdline", "memstats"} & set(status)
    assert "--queue-dir" not in json.dumps(status)


def test_a_signal_drains(feed: Running, tmp_path: Path) -> None:
    """The received operations are sent before it ends; no stack trace is printed."""
    with Agent(feed.target.url, tmp_path) as agent:
        agent.send(*[operation(n) for n in range(2_500)])
        agent.until(lambda status: status["events_received"] > 0)
        code, said = agent.stop(signal.SIGTERM)

        assert (code, said.partition(" operations")[0]) == (0, "tidings agent ended, 0")
        assert agent.errors == ""
    assert feed.target.ids == [str(n) for n in range(2_500)]


def test_a_drain_ends(feed: Running, tmp_path: Path) -> None:
    """With the target away it says what is left on disk, and the next agent sends it."""
    target = feed.target
    feed.close()
    with Agent(target.url, tmp_path, "--drain-seconds", "0.3") as agent:
        agent.send(operation("a"), operation("b"))
        agent.until(lambda status: status["queue_size"] == 2)
        code, said = agent.stop(signal.SIGINT)
        assert code == 0
        assert said.startswith("tidings agent ended, 2 operations left in ")
        assert len(agent.errors.splitlines()) == 1
        feed.open()
        assert "2 operations queued" in agent.start()
        target.until(lambda: target.ids == ["a", "b"])


def test_a_burst_is_accounted_for(agent: Agent, target: Target) -> None:
    """Received, discarded, error and the kernel's drops are what was sent; all received arrive."""
    sent, before = 20_000, agent.status()
    cycle = itertools.cycle([*[operation(n) for n in range(99)], b"junk"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        host, _, port = agent.url.removeprefix("http://").rpartition(":")
        sock.connect((host, int(port)))
        for datagram in itertools.islice(cycle, sent):
            sock.send(datagram)

    def counted(status: dict[str, int]) -> int:
        names = ("events_received", "events_discarded", "events_error", "kernel_drops")
        return sum(status[name] - before[name] for name in names)

    status = agent.until(lambda status: counted(status) >= sent and not status["queue_size"])
    assert counted(status) == sent
    received = status["events_received"] - before["events_received"]
    assert len(target.appended) == received
    assert len(re.findall("a datagram is not an operation", agent.errors)) <= 3  # lives so far


def test_W22_help_shows_no_secret() -> None:
    """The variable is named, and its value is not shown as the default: people paste help."""
    told = CliRunner().invoke(command.agent, ["--help"], env={"TIDINGS_PASSWORD": "swordfish"})

    assert "Examples:" in told.output
    assert "Exit codes:" in told.output
    assert "TIDINGS_PASSWORD" in told.output
    assert "swordfish" not in told.output


def test_one_agent_a_folder_and_a_port(agent: Agent, tmp_path: Path) -> None:
    """A second one gets an error of one sentence."""
    folder = agent.folder / "queue"
    address = agent.url.removeprefix("http://")

    assert _status_of(folder, "127.0.0.1:0") == (
        f"tidings agent: another agent uses the queue folder {folder};"
        " give each agent its own --queue-dir\n"
    )
    assert _status_of(tmp_path, address) == (
        f"tidings agent: cannot listen on {address}: address already in use\n"
    )
    (tmp_path / "file").touch()
    assert "cannot use the queue folder" in _status_of(tmp_path / "file/below", "127.0.0.1:0")


def _status_of(folder: Path, address: str) -> str:
    options = ["--url", "http://127.0.0.1:1", "--queue-dir", str(folder), "--listen", address]
    done = CliRunner().invoke(command.agent, options)
    assert done.exit_code == 1
    return done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8042", ("127.0.0.1", 8042)),
        (":8042", ("0.0.0.0", 8042)),
        ("localhost", ("localhost", 8042)),
        ("[::1]:9", ("::1", 9)),
        ("[::1]", ("::1", 8042)),
    ],
)
def test_addresses_to_listen_on(text: str, found: tuple[str, int]) -> None:
    """With or without a port, and as oplog wrote every address."""
    (option,) = (each for each in command.agent.params if each.name == "listen")
    ctx = click.Context(command.agent)

    assert option.callback is not None
    assert option.callback(ctx, option, text) == found


KILLS = 3
ACKED_BEFORE_KILL = 60
SEED = 11


class Producer(threading.Thread):
    """Posts numbered operations one after another; what fails is never sent again."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent = agent
        self.acked: list[str] = []
        self.more = threading.Condition()
        self.sent = 0
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            serial, self.sent = str(self.sent), self.sent + 1
            try:
                answer = self._agent.post(operation(serial))
            except httpx.HTTPError:
                continue
            if answer.status_code == 204:
                with self.more:
                    self.acked.append(serial)
                    self.more.notify_all()

    def until_acked(self, count: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: len(self.acked) >= count, 60)


def test_nothing_acknowledged_is_lost_or_appended_twice(tmp_path: Path) -> None:
    """Killed in the middle of a load, several times; the feed's answers are lost with it."""
    choose = random.Random(SEED)
    with Server() as server, Agent(server.url, tmp_path) as agent:
        producer = Producer(agent)
        producer.start()
        for _ in range(KILLS):
            producer.until_acked(len(producer.acked) + ACKED_BEFORE_KILL + choose.randint(0, 20))
            agent.kill()
            agent.start()
        producer.until_acked(len(producer.acked) + 1)
        producer.stopping = True
        producer.join(60)
        agent.until(lambda status: status["queue_size"] == 0)
        httpx.post(server.url, json={"event": "insert", "type": "end", "id": "end"}, timeout=30)
        log = consumers.log_from(
            server.url, BEFORE_THE_FIRST, lambda heard: heard.data["type"] == "end"
        )

    appended = [heard.data["id"] for heard in log[:-1]]
    assert [serial for serial, times in Counter(appended).items() if times > 1] == []
    assert set(producer.acked) - set(appended) == set()
    assert appended == sorted(appended, key=int)


PAGE = (Path(__file__).parents[3] / "docs/guides/AGENT.md").read_text()
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M)
    for line in block.split("\n")
]


def test_the_agents_command_is_understood() -> None:
    """Its options exist; the other tests of the agent cover their effects."""
    (line,) = (line for line in LINES if "tidings agent" in line)

    context = command.agent.make_context("agent", shlex.split(line)[2:])

    assert context.params["listen"] == ("127.0.0.1", 8043)


@pytest.mark.curl
def test_the_producers_commands_work(tmp_path: Path) -> None:
    """They run over UDP and HTTP unchanged, except for the port; the page names every field of
    `/status`.
    """
    with running() as feed, Agent(feed.target.url, tmp_path) as agent:
        port = agent.url.rpartition(":")[2]
        for line in LINES:
            if line and "tidings agent" not in line:
                assert "8043" in line
                done = subprocess.run(["bash", "-c", line.replace("8043", port)], timeout=60)
                assert done.returncode == 0, line
        feed.target.until(lambda: sorted(feed.target.ids) == ["x32", "x33"])
        fields = set(agent.status())

    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert fields - named == set()


@pytest.mark.parametrize("option", command.agent.params, ids=lambda option: str(option.name))
def test_options_have_their_help(option: object) -> None:
    """`--help` explains each of them."""
    assert getattr(option, "help", None)
