"""`tidings erase` and `tidings erasures`: their requests and their output."""

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
REPORT: dict[str, Any] = {
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
}
LOCATIONS = [
    {"name": "log", "status": "done", "until": None, "note": "5 entries on 3 pages"},
    {
        "name": "erasure entry",
        "status": "pending",
        "until": "2026-12-11T18:59:33.363Z",
        "note": "the erasure entry and the tombstone have the type, the id and the parents",
    },
]
WHOLE = {**REPORT, "locations": LOCATIONS}


@pytest.fixture
def feed() -> Iterator[Answering]:
    with answering(Answer(202, WHOLE)) as server:
        yield server


def run(feed: Answering, *words: str, columns: int = 80) -> Result:
    environment = {"COLUMNS": str(columns), "TIDINGS_PASSWORD": "a key"}
    return CliRunner().invoke(main, [*words, "--url", feed.url], env=environment)


def test_an_erasure_is_requested_and_its_report_shown(feed: Answering) -> None:
    """In a narrow terminal, too, and without control characters of the id."""
    done = run(feed, "erase", "user", "ann", "--reason", "request 7", "--parents")
    assert done.exit_code == 0, done.output
    (asked,) = feed.asked
    assert (asked.method, asked.path) == ("POST", "/feeds/main/erasures")
    assert json.loads(asked.body) == {
        "type": "user",
        "id": "ann",
        "reason": "request 7",
        "parents": True,
    }
    lines = done.output.splitlines()
    assert f"id            {ID}" in lines
    assert "object        user/ann\\x1b[2J" in lines
    assert any(line.startswith("found         nothing: check") for line in lines)
    assert any("erasure entry" in line and "2026-12-11 18:59Z" in line for line in lines)
    assert not any(line.startswith("before") for line in lines)


def test_a_cursor_is_sent_where_it_is_given(feed: Answering) -> None:
    run(feed, "erase", "user", "ann", "--reason", "r", "--before", ID)
    assert json.loads(feed.asked[0].body)["before"] == ID


def test_a_request_without_an_answer_is_repeated_as_the_same_one(
    feed: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one Idempotency-Key, so that it is one erasure."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    feed.script[:] = [Answer(503, {}), Answer(202, WHOLE)]
    done = run(feed, "erase", "user", "ann", "--reason", "r", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout) == WHOLE
    assert "trying again" in done.stderr
    first, second = feed.asked
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] != ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("erase", "user", "ann"), 2),
        (("erase", "user", "--reason", "r"), 2),
        (("erasures", "show"), 2),
        (("erasures", "show", "nonsense"), 1),
        (("erasures", "list"), 1),
    ],
)
def test_exit_codes(feed: Answering, words: tuple[str, ...], code: int) -> None:
    """2 for wrong usage, 1 for a refusal, in one line."""
    error = {"error": {"code": "unknown_erasure", "message": "id: no such erasure of this feed"}}
    feed.script[:] = [Answer(404, error)]
    done = run(feed, *words)
    assert done.exit_code == code and "Traceback" not in done.output
    if code == 1:
        assert done.stderr == (
            "Error: refused (404 unknown_erasure): id: no such erasure of this feed\n"
        )


def test_all_erasures_are_listed(feed: Answering) -> None:
    """Over several answers, with whole ids in a narrow terminal; JSON has them all."""
    gone = {**REPORT, "id": "0" * 24, "object": {"type": "user", "id": None}, "state": "done"}
    pages = [
        Answer(200, {"erasures": [REPORT], "next": ID}),
        Answer(200, {"erasures": [gone], "next": None}),
    ]
    feed.script[:] = [*pages, *pages]
    lines = run(feed, "erasures", "list", columns=40).output.splitlines()
    assert lines == [
        "id                        state   requested          object",
        f"{ID}  erased  2026-11-27 18:59Z  user/ann\\x1b[2J",
        f"{'0' * 24}  done    2026-11-27 18:59Z  user",
    ]
    path = "/feeds/main/erasures"
    assert [asked.path for asked in feed.asked] == [path, f"{path}?after={ID}"]
    assert json.loads(run(feed, "erasures", "list", "--json").output) == [REPORT, gone]
    feed.script[:] = [Answer(200, {"erasures": [], "next": None})]
    assert run(feed, "erasures", "list").output == "no erasures\n"


def test_a_report_is_shown_again(feed: Answering) -> None:
    feed.script[:] = [Answer(200, WHOLE)]
    assert json.loads(run(feed, "erasures", "show", ID, "--json").output) == WHOLE
    assert feed.asked[0].path == f"/feeds/main/erasures/{ID}"
