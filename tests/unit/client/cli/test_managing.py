"""Commands that manage a feed: what no running server shows.

Their messages, output and exit codes at a server are recorded in tests/commands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, Answering, answering
from tidings.client.cli.main import main

ID = "6b09d3150000000004000000"
LIVE: dict[str, Any] = {
    "feed": "orders",
    "state": "live",
    "number": 1,
    "created_at": "2026-11-27T18:59:33.363Z",
    "deleted_at": None,
    "by": "key 3k2m9c0q8xw1",
    "settings": None,
    "removals": [],
}
REMOVAL: dict[str, Any] = {
    "number": 1,
    "state": "deleting",
    "deleted_at": "2026-11-27T19:01:33.363Z",
    "done_at": None,
    "tables": "kept",
    "removed": {"log": 1200},
}
GOING = {**LIVE, "state": "deleting", "deleted_at": REMOVAL["deleted_at"], "removals": [REMOVAL]}
GONE = {**REMOVAL, "state": "deleted", "done_at": "2026-11-27T19:02:00Z"}
ERASED: dict[str, Any] = {
    "id": ID,
    "object": {"type": "user", "id": "ann\x1b[2J"},
    "state": "erased",
    "found": False,
    "by": "key 3k2m9c0q8xw1",
    "reason": "request 7",
    "parents": True,
    "before": None,
    "requested_at": "2026-11-27T18:59:33.363Z",
    "erased_at": "2026-11-27T19:00:01Z",
    "until": "2026-12-11T18:59:33.363Z",
    "locations": [{"name": "log", "status": "done", "until": None, "note": "5 entries"}],
}
CHAINED: dict[str, Any] = {
    "feed": "main",
    "status": "running",
    "role": "leader",
    "upstream": "https://m.example/feeds/main",
    "page": 1234,
    "lag_pages": 2,
    "error": "",
    "via": ["a", "b"],
    "copy": {"buckets_done": 3, "buckets": 64},
    "head": 1234,
    "min": {"page": 1, "cursor": "c1", "time": "2026-11-22T10:00:00Z"},
    "max": None,
    "members": [
        {"address": "https://a", "role": "leader", "page": 9, "heard_ms_ago": 5, "gone": False},
        {"address": "https://b", "role": "follower", "page": 8, "heard_ms_ago": 5, "gone": True},
    ],
}
LOCAL = {"feed": "orders", "role": "master", "status": "master", "head": 7}
STATUS: dict[str, Any] = {
    "status": "OK",
    "events_received": 1234567,
    "clients": None,
    "feed": "\x1b[2J",
    "note": "[bold]x[/bold]",
    "followers": [
        {"name": "state", "checkpoint": 3, "lag_pages": 4, "lag_ms": 1500, "leased": True}
    ],
}


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with answering(Answer()) as server:
        yield server


def run(feed: Answering, words: str, *script: Answer, said: str = "") -> Result:
    """Run `tidings` with *words*; *script* are the next answers, the last one for ever."""
    if script:
        feed.script[:] = script
    environment = {"COLUMNS": "300", "TIDINGS_PASSWORD": "a key"}
    command = [*words.split(), "--url", feed.url]
    return CliRunner().invoke(main, command, env=environment, input=said)


def test_only_a_safe_request_is_repeated(feed: Answering) -> None:
    """A repeated creation could find its own feed and report that it exists."""
    assert run(feed, "feeds create orders", Answer(503), Answer(201, LIVE)).exit_code == 1
    assert len(feed.asked) == 1
    safe = run(feed, "feeds create orders --update", Answer(503), Answer(200, LIVE))
    assert safe.exit_code == 0


def test_an_erasure_without_an_answer_is_repeated_as_the_same_one(feed: Answering) -> None:
    """With one Idempotency-Key, so that it is one erasure."""
    done = run(feed, "erase user ann --reason r --json", Answer(503), Answer(202, ERASED))
    assert done.exit_code == 0 and json.loads(done.stdout) == ERASED
    assert "trying again" in done.stderr
    first, second = feed.asked
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] != ""


def test_a_list_is_read_to_its_end(feed: Answering) -> None:
    """Over several answers, of which one may be empty; JSON has all entries."""
    long = {**LIVE, "feed": "z" * 63, "created_at": None, "state": "deleting"}
    pages = [
        Answer(200, {"feeds": [LIVE], "next": "orders"}),
        Answer(200, {"feeds": [], "next": "p"}),
        Answer(200, {"feeds": [long], "next": None}),
    ]
    shown = run(feed, "feeds list", *pages, *pages).output.splitlines()
    assert [line.split() for line in shown] == [
        ["feed", "state", "created"],
        ["orders", "live", "2026-11-27", "18:59Z"],
        ["z" * 63, "deleting", "named", "by", "the", "host"],
    ]
    assert [asked.path for asked in feed.asked] == [
        "/feeds",
        "/feeds?after=orders",
        "/feeds?after=p",
    ]
    assert json.loads(run(feed, "feeds list --deleted --json").output) == [LIVE, long]
    assert feed.asked[3].path == "/feeds?deleted=true"


def test_the_end_of_a_removal_is_awaited(feed: Answering) -> None:
    """Also if the server restarts, and if another feed of the name is created in that time."""
    again = {**LIVE, "number": 2, "removals": [REMOVAL]}
    answers = [
        Answer(202, GOING),
        Answer(200, GOING),
        Answer(503),
        Answer(200, again),
        Answer(200, {**again, "removals": [GONE]}),
    ]
    done = run(feed, "feeds delete orders --yes --tables --wait", *answers)
    assert done.exit_code == 0, done.output
    assert len(feed.asked) == 5 and "tables=true" in feed.asked[0].path
    assert done.stdout.splitlines()[-6:] == [
        "removal of number    1",
        "state                deleted",
        "deleted              2026-11-27 19:01Z",
        "removed              2026-11-27 19:02Z",
        "tables               kept",
        "  log                1,200",
    ]


def test_a_finished_erasure_is_shown(feed: Answering) -> None:
    """Without control characters of the id, which is null once it is erased."""
    lines = run(feed, f"erasures show {ID}", Answer(200, ERASED)).output.splitlines()
    assert feed.asked[0].path == f"/feeds/main/erasures/{ID}"
    assert "object        user/ann\\x1b[2J" in lines
    assert any(line.startswith("found         nothing: check") for line in lines)
    assert not any(line.startswith("before") for line in lines)
    gone = {**ERASED, "object": {"type": "user", "id": None}, "state": "done"}
    listed = run(feed, "erasures list", Answer(200, {"erasures": [ERASED, gone], "next": None}))
    assert listed.output.splitlines() == [
        "id                        state   requested          object",
        f"{ID}  erased  2026-11-27 18:59Z  user/ann\\x1b[2J",
        f"{ID}  done    2026-11-27 18:59Z  user",
    ]


@pytest.mark.parametrize(("status", "code"), [("running", 0), ("fell-off", 3), ("paused", 3)])
def test_D23_a_monitor_is_told_by_the_exit_code(feed: Answering, status: str, code: int) -> None:
    """Chained feeds are listed by their place, local ones by their head; 0 if all run."""
    relays = [CHAINED | {"status": status}, LOCAL]
    done = run(feed, "relays list --check", Answer(200, {"relays": relays}))
    assert done.exit_code == code
    assert [line.split()[:5] for line in done.output.splitlines()] == [
        ["feed", "status", "role", "page", "lag_pages"],
        ["main", status, "leader", "1,234", "2"],
        ["orders", "master", "master", "7"],
    ]


def test_D38_a_chained_feed_is_shown(feed: Answering) -> None:
    """With its members; empty fields are left out. Unknown members are an error."""
    lines = run(feed, "relays show main", Answer(200, CHAINED)).output.splitlines()
    told = {line[:21].strip(): line[21:].strip() for line in lines}
    assert (told["page"], told["via"], told["copied"]) == ("1,234", "a, b", "3 of 64 buckets")
    assert told["min"] == "c1 of 2026-11-22T10:00:00Z"
    assert "error" not in told and "max" not in told
    assert "member                https://b: follower at page 8, gone" in lines
    assert "leader" in run(feed, "relays members main").output
    done = run(feed, "relays members main", Answer(200, CHAINED | {"members": None}))
    assert (done.exit_code, "does not answer" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("words", "said", "path", "body"),
    [
        ("pause main", "", "pause", {}),
        ("resume main", "", "resume", {}),
        ("shutdown main", "", "shutdown", {}),
        ("start main", "", "start", {}),
        ("reset main --to latest --why x", "", "reset", {"to": "latest", "why": "x"}),
        ("password main", "correct horse\nmore\n", "password", {"password": "correct horse"}),
    ],
)
def test_D24_D35_an_action_is_sent(
    feed: Answering, words: str, said: str, path: str, body: object
) -> None:
    """Only the first line of a password is used, and it is not shown."""
    done = run(feed, f"relays {words}", Answer(200, CHAINED | {"password": "set"}), said=said)
    shown = "main: password set\n" if said else "main is running at page 1,234\n"
    assert (done.exit_code, done.output) == (0, shown)
    (asked,) = feed.asked
    assert asked.method == ("PUT" if said else "POST")
    assert asked.path == f"/feeds/main/relay/{path}"
    assert asked.json == body


@pytest.mark.parametrize(
    ("status", "said", "code"), [(200, "OK", 0), (200, "LAGGING", 3), (503, "UNAVAILABLE", 3)]
)
def test_a_status_is_shown_whatever_it_is(
    feed: Answering, status: int, said: str, code: int
) -> None:
    """Numbers are readable; control characters and markup are shown, not obeyed."""
    report = STATUS | {"status": said}
    done = run(feed, "status --feed b", Answer(status, report))
    assert done.exit_code == code
    assert feed.asked[0].path == "/feeds/b/status"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[:6] == [
        ["status", said],
        ["head", "unknown"],
        ["lag", "state", "4", "pages,", "1.5", "s"],
        ["clients", "unknown"],
        ["problems", "none"],
        ["events_received", "1,234,567"],
    ]
    assert lines[-1] == ["state", "3", "4", "1.5", "s", "yes"]
    assert "\x1b[2J" not in done.stdout and "[bold]x[/bold]" in done.stdout
    assert run(feed, "status --json").stdout == json.dumps(report, separators=(",", ":")) + "\n"
