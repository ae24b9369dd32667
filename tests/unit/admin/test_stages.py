"""Stages by their names: `tidings stages`, and --stage where a command takes an address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, Answering, answering
from tests.unit.admin.cloudformation import deployed
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.address import DEFAULT_URL, socket_url
from tidings.client.cli.main import main
from tidings.client.cli.options import address_options
from tidings.core.auth.passwords import hash_password
from tidings.core.settings.profiles import Profile, ProfileStore

OUTPUTS = {
    "FeedUrl": "https://feed.example.org",
    "StreamUrl": "https://stream.example.org/",
    "SocketsUrl": "wss://sockets.example.org/live",
    "ControlTable": "control",
    "Feeds": "main,orders",
}
NEW_MS, OLD_MS = 4_102_444_800_000, 1_500_000_000_000  # years 2100 and 2017
SALT = bytes(16)


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfileStore]:
    """Return the profiles of the stage `dev`, the only one of its account."""
    with deployed(monkeypatch, OUTPUTS) as client:
        yield ProfileStore(DynamoDBRecords(client, "control"))


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def _passwords(profiles: ProfileStore) -> None:
    stored = tuple(hash_password("correct horse", salt=SALT, now_ms=at) for at in (NEW_MS, OLD_MS))
    profiles.save("orders", replace(Profile(), read_passwords=stored, ingest_passwords=stored[1:]))


def test_a_stage_behind_one_address_is_asked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands ask it; the WebSocket has the address that a client derives from it."""
    with deployed(monkeypatch, OUTPUTS | {"Url": "https://all.example.org"}):
        (told,) = map(json.loads, _run("stages", "--json").stdout.splitlines())
    urls = {told["feed_url"], told["stream_url"]}
    assert urls == {"https://all.example.org"}
    assert told["sockets_url"] == socket_url(*urls)


def test_what_a_stage_exposes(profiles: ProfileStore) -> None:
    """Its addresses and feeds, and of passwords the role and the age, never a hash."""
    _passwords(profiles)
    (told,) = map(json.loads, _run("stages", "--json").stdout.splitlines())
    assert told == {
        "stage": "dev",
        "feed_url": OUTPUTS["FeedUrl"],
        "stream_url": OUTPUTS["StreamUrl"],
        "sockets_url": OUTPUTS["SocketsUrl"],
        "feeds": [
            {"feed": "main", "passwords": [], "keys": []},
            {
                "feed": "orders",
                "keys": [],
                "passwords": [
                    {"role": "read", "set_at": "2100-01-01T00:00:00Z", "due": False},
                    {"role": "read", "set_at": "2017-07-14T02:40:00Z", "due": True},
                    {"role": "ingest", "set_at": "2017-07-14T02:40:00Z", "due": True},
                ],
            },
        ],
    }


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(("days", "due"), [("1", False), ("0", True)])
def test_keys_that_hold(days: str, due: bool) -> None:
    """By their ids, never by what opens a feed; one that was revoked is not due for anything."""
    made = [
        _run("keys", "create", "--stage", "dev", "--role", "read", "--label", label, "--json")
        for label in ("shop", "gone")
    ]
    shop, gone = (json.loads(each.stdout)["id"] for each in made)
    assert _run("keys", "revoke", gone, "--stage", "dev").exit_code == 0
    told = _run("stages", "dev", "--json", "--older-than", days).stdout
    main_feed = json.loads(told)["feeds"][0]
    assert [(key["id"], key["label"], key["due"]) for key in main_feed["keys"]] == [
        (shop, "shop", due)
    ]
    assert not any(json.loads(each.stdout)["key"] in told for each in made)
    assert f"key {shop} of " in _run("stages", "dev").stdout


def test_a_stage_for_a_person(profiles: ProfileStore) -> None:
    """A stage is shown by its name; an unknown one is an error."""
    _passwords(profiles)
    shown = _run("stages", "dev", "--older-than", "99999").stdout
    assert "  sockets   wss://sockets.example.org/live\n" in shown
    assert "closed, unless the stage is open" in shown
    assert "read password of 2017-07-14T02:40:00Z, due to be rotated\n" in shown  # the second one
    assert "ingest password of 2017-07-14T02:40:00Z\n" in shown
    missing = _run("stages", "prod")
    assert (missing.exit_code, "the stack tidings-prod" in missing.stderr) == (1, True)


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("words", "url", "ws_url"),
    [
        ("", DEFAULT_URL, None),
        ("http://a", "http://a", None),
        ("--url http://a --ws-url ws://b", "http://a", "ws://b"),
        ("--stage dev", OUTPUTS["FeedUrl"], OUTPUTS["SocketsUrl"]),
        ("--stage dev --ws-url ws://b", OUTPUTS["FeedUrl"], "ws://b"),
        ("--stage dev --transport sse", OUTPUTS["StreamUrl"], OUTPUTS["SocketsUrl"]),
    ],
)
def test_where_a_command_asks(words: str, url: str, ws_url: str | None) -> None:
    """It asks an address, or the stage's address for the operation, and by default this machine."""
    seen: dict[str, Any] = {}

    @click.command()
    @address_options
    @click.option("--ws-url")
    @click.option("--transport")
    @click.argument("address", required=False)
    def command(**values: Any) -> None:
        seen.update(values)

    assert CliRunner().invoke(command, words.split()).exit_code == 0
    assert (seen["url"], seen["ws_url"]) == (url, ws_url)


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("log oldest --stage prod", 1, "the stack tidings-prod"),
        ("relays list --stage prod", 1, "the stack tidings-prod"),
    ],
)
def test_what_no_stage_can_mean(words: str, code: int, said: str) -> None:
    """Each kind of command prints one sentence."""
    done = _run(*words.split())
    assert (done.exit_code, said in done.stderr) == (code, True)


def _group(tag: str, service: str, dollars: str) -> dict[str, Any]:
    """Return a group as Cost Explorer does: with the tag's key and value, or the key alone."""
    amount = {"UnblendedCost": {"Amount": dollars, "Unit": "USD"}}
    return {"Keys": [f"tidings:stage${tag}", service], "Metrics": amount}


def _page(*groups: dict[str, Any], **others: str) -> Answer:
    period = {"Start": "2026-01-01", "End": "2026-01-02"}
    result = {"TimePeriod": period, "Groups": list(groups), "Estimated": True}
    return Answer(body={"ResultsByTime": [result], **others})


@pytest.fixture
def explorer(profiles: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Cost Explorer; its script is what it answers."""
    with answering(_page()) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_COST_EXPLORER", server.url)
        yield server


def test_what_a_stage_cost_yesterday(explorer: Answering) -> None:
    """Costs are summed by service over all pages, the highest first; other stages and untagged
    costs are left out.
    """
    first = (_group("dev", "AWS Lambda", "0.25"), _group("prod", "AWS Lambda", "9"))
    rest = (_group("dev", "Amazon DynamoDB", "1.5"), _group("", "AWS KMS", "7"))
    explorer.script = [_page(*first, NextPageToken="more"), _page(*rest)]
    (told,) = map(json.loads, _run("stages", "--cost", "--json").stdout.splitlines())

    assert told["cost"]["dollars"] == 1.75
    assert list(told["cost"]["services"].items()) == [
        ("Amazon DynamoDB", 1.5),
        ("AWS Lambda", 0.25),
    ]
    asked, more = (each.json for each in explorer.asked)
    assert [each["Key"] for each in asked["GroupBy"]] == ["tidings:stage", "SERVICE"]
    assert asked["TimePeriod"]["Start"] == told["cost"]["day"] < asked["TimePeriod"]["End"]
    assert more["NextPageToken"] == "more"


def test_a_cost_without_tags_is_unknown(explorer: Answering) -> None:
    """Zero would be wrong: the tag is not activated in Billing. Without --cost no request is
    billed."""
    explorer.script = [_page(_group("", "AWS Lambda", "3"))]
    assert "unknown; Billing does not use the tag tidings:stage" in _run("stages", "--cost").stdout
    before = len(explorer.asked)
    assert "cost" not in _run("stages").stdout
    assert len(explorer.asked) == before
