"""supervise: chained feeds as their operators see them, and follow-relay, which they steer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.functions.cloud import Cloud
from tests.functions.relaying import RELAY, act, ask, chained, copied, wake
from tests.functions.upstream import Upstream, serving
from tidings.aws import clients
from tidings.aws.stage import stage

SECRET = "correct horse"
PASSWORD = f"{RELAY}/password"


@pytest.fixture
def upstream(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    with serving() as server:
        chained(server, monkeypatch)
        yield server


def test_D2_pages_are_copied_as_they_are(upstream: Upstream) -> None:
    """With numbers and bytes; the next run continues after them."""
    copied(upstream, 1, 2)

    assert [page.number for page in stage().stores.log.read("main", 0)] == [1, 2]
    status, found = ask("GET", RELAY)
    assert status == 200
    assert (found["status"], found["page"], found["pages"]) == ("running", 2, 2)
    assert "after=" not in upstream.asked[0]
    wake()
    assert f"after={found['cursor']}" in upstream.asked[-1]


def test_D23_every_feed_is_told(cloud: Cloud, upstream: Upstream) -> None:
    """By name, status and position; an operator's step wakes the relay."""
    copied(upstream, 1)
    assert act("shutdown")[0] == 200
    (found,) = ask("GET", "/relays")[1]["relays"]
    assert (found["feed"], found["status"], found["page"]) == ("main", "shutdown", 1)
    assert ("tidings-dev-follow-relay", {"ring": "main"}) in cloud.invoked


def test_the_upstreams_password_is_sent_and_told_to_nobody(
    upstream: Upstream, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not by a route, not in an error, not in a log."""
    assert ask("PUT", PASSWORD, {"password": SECRET}) == (200, {"feed": "main", "password": "set"})
    copied(upstream, 1)
    assert upstream.headers["authorization"].startswith("Basic ")
    told = json.dumps([ask("GET", RELAY), ask("GET", "/relays")])
    for wrong in ({"password": f"{SECRET}\n"}, {"password": [SECRET]}, {"secret": SECRET}):
        status, error = ask("PUT", PASSWORD, wrong)
        assert status == 400
        told += json.dumps(error)
    assert SECRET not in told + "".join(capfd.readouterr())
    assert ask("PUT", PASSWORD, {"password": ""})[1]["password"] == "none"
    assert stage().stores.relay_passwords.password("main") == ""


def test_D32_a_broken_relay_copies_nothing(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so in its log; the upstream is not even asked."""
    item = {"kind": "relay", "name": "main", "document": "{"}
    stored = {name: {"S": value} for name, value in item.items()} | {"version": {"N": "3"}}
    clients.dynamodb().put_item(TableName="control", Item=stored)
    copied(upstream, 1)
    assert upstream.asked == []
    assert stage().stores.log.read("main", 0) == []
    (told,) = (vars(each)["reason"] for each in caplog.records if "relay" in each.message)
    assert "the stored relay cannot be read" in told
