"""`tidings feeds`: its requests, its confirmation and its output."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, Answering, answering
from tidings.client.cli.main import main

SETTINGS: dict[str, Any] = {
    "object_url": "",
    "compat": "",
    "leave": True,
    "resources": [{"resource": "vm", "subResources": ["nic"], "bootstrapRoute": "/vms"}],
    "max_age": 3600,
    "push_lanes": 1,
    "ids_personal": True,
    "forget_after_days": 0,
}
LIVE: dict[str, Any] = {
    "feed": "orders",
    "state": "live",
    "number": 1,
    "created_at": "2026-11-27T18:59:33.363Z",
    "deleted_at": None,
    "by": "key 3k2m9c0q8xw1",
    "settings": SETTINGS,
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
GOING = {**LIVE, "state": "deleting", "deleted_at": REMOVAL["deleted_at"], "settings": None}
GOING |= {"removals": [REMOVAL]}
GONE = {**GOING, "state": "deleted"}
GONE |= {"removals": [{**REMOVAL, "state": "deleted", "done_at": "2026-11-27T19:02:00Z"}]}


@pytest.fixture
def host() -> Iterator[Answering]:
    with answering(Answer(201, LIVE)) as server:
        yield server


def run(host: Answering, *words: str, columns: int = 80, typed: str | None = None) -> Result:
    environment = {"COLUMNS": str(columns), "TIDINGS_PASSWORD": "a key"}
    words = ("feeds", *words, "--url", host.url)
    return CliRunner().invoke(main, words, env=environment, input=typed)


def refuse(host: Answering, status: int, code: str, message: str) -> None:
    host.script[:] = [Answer(status, {"error": {"code": code, "message": message}})]


def test_a_feed_is_created_with_the_settings_that_are_given(host: Answering) -> None:
    """Only these are sent, and an existing feed is not changed."""
    words = ("--leave", "on", "--compat", "none", "--resource", "vm:nic", "--max-age", "3600")
    done = run(host, "create", "orders", *words)
    assert done.exit_code == 0, done.output
    (asked,) = host.asked
    assert (asked.method, asked.path) == ("PUT", "/feeds/orders")
    assert asked.headers["If-None-Match"] == "*"
    assert asked.json == {
        "leave": True,
        "compat": "",
        "resources": [{"resource": "vm", "subResources": ["nic"]}],
        "max_age": 3600,
    }
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:3] == [
        "feed                 orders",
        "state                live",
        "number               1",
    ]
    assert "resources            vm: nic" in lines and "leave                yes" in lines
    assert not any(line.startswith("forget after") for line in lines)


def test_a_resource_keeps_its_route(host: Answering) -> None:
    run(host, "create", "orders", "--resource", "vm:nic=/vms", "--max-age", "60")
    (resource,) = host.asked[0].json["resources"]
    assert resource == {"resource": "vm", "subResources": ["nic"], "bootstrapRoute": "/vms"}


def test_an_existing_feed_is_changed_only_with_update(host: Answering) -> None:
    """Without it, the command names the option and ends with 1."""
    refuse(host, 412, "feed_exists", "feed: exists already")
    done = run(host, "create", "orders")
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: the feed orders exists already; use --update to change its settings\n",
    )
    host.script[:] = [Answer(200, LIVE)]
    done = run(host, "create", "orders", "--leave", "off", "--update", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout) == LIVE
    assert "If-None-Match" not in host.asked[-1].headers


def test_only_a_safe_request_is_repeated(host: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated creation could find its own feed and report that it exists."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    host.script[:] = [Answer(503, {}), Answer(201, LIVE)]
    assert run(host, "create", "orders").exit_code == 1 and len(host.asked) == 1
    host.script[:] = [Answer(503, {}), Answer(200, LIVE)]
    assert run(host, "create", "orders", "--update").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create",), 2),
        (("create", "a", "--resource", "vm:nic", "--no-resources"), 2),
        (("create", "a", "--resource", "vm"), 1),
        (("show", "a"), 1),
        (("list",), 1),
        (("delete", "a", "--yes"), 1),
    ],
)
def test_exit_codes(host: Answering, words: tuple[str, ...], code: int) -> None:
    """2 for wrong usage, 1 for a refusal, in one line."""
    refuse(host, 404, "unknown_feed", "feed: no such feed here")
    done = run(host, *words)
    assert done.exit_code == code and "Traceback" not in done.output
    if code == 1:
        assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_all_feeds_are_listed(host: Answering) -> None:
    """Over several answers, with whole names in a narrow terminal; JSON has them all."""
    long = {**LIVE, "feed": "z" * 63, "created_at": None, "state": "deleting"}
    pages = [
        Answer(200, {"feeds": [LIVE], "next": "orders"}),
        Answer(200, {"feeds": [], "next": "p"}),
        Answer(200, {"feeds": [long], "next": None}),
    ]
    host.script[:] = [*pages, *pages]
    done = run(host, "list", columns=40)
    assert done.exit_code == 0, done.output
    shown = [line.split() for line in done.output.splitlines()]
    assert shown == [
        ["feed", "state", "created"],
        ["orders", "live", "2026-11-27", "18:59Z"],
        ["z" * 63, "deleting", "named", "by", "the", "host"],
    ]
    paths = [asked.path for asked in host.asked]
    assert paths == ["/feeds", "/feeds?after=orders", "/feeds?after=p"]
    assert json.loads(run(host, "list", "--deleted", "--json").output) == [LIVE, long]
    assert host.asked[3].path == "/feeds?deleted=true"
    host.script[:] = [Answer(200, {"feeds": [], "next": None})]
    assert run(host, "list").output == "no feeds\n"


def test_a_feed_is_deleted_after_its_name_was_typed(host: Answering) -> None:
    """Another name deletes nothing."""
    host.script[:] = [Answer(202, GOING)]
    done = run(host, "delete", "orders", typed="order\n")
    assert done.exit_code == 1 and host.asked == []
    assert done.stderr.endswith("Error: that is not the name of the feed; nothing was deleted\n")
    done = run(host, "delete", "orders", "--force", typed="orders\n")
    assert done.exit_code == 0, done.output
    (asked,) = host.asked
    parts = urlsplit(asked.path)
    assert (asked.method, parts.path) == ("DELETE", "/feeds/orders")
    assert parse_qs(parts.query) == {"confirm": ["orders"], "force": ["true"]}
    assert "state                deleting" in done.stdout.splitlines()


def test_a_feed_in_use_is_reported_with_the_option(host: Answering) -> None:
    refuse(host, 409, "feed_in_use", "feed: is used by the consumer search")
    done = run(host, "delete", "orders", "--yes")
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: feed: is used by the consumer search (--force)\n",
    )


def test_the_end_of_the_removal_is_awaited(
    host: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the server restarts, and if another feed of the name is created in that time."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    again = {**LIVE, "number": 2, "removals": GOING["removals"]}
    end = {**again, "removals": GONE["removals"]}
    answers: tuple[tuple[int, dict[str, Any]], ...] = (
        (202, GOING),
        (200, GOING),
        (503, {}),
        (200, again),
        (200, end),
    )
    host.script[:] = [Answer(*each) for each in answers]
    done = run(host, "delete", "orders", "--yes", "--tables", "--wait")
    assert done.exit_code == 0, done.output
    assert len(host.asked) == 5 and "tables=true" in host.asked[0].path
    assert done.stdout.splitlines()[-6:] == [
        "removal of number    1",
        "state                deleted",
        "deleted              2026-11-27 19:01Z",
        "removed              2026-11-27 19:02Z",
        "tables               kept",
        "  log                1,200",
    ]
