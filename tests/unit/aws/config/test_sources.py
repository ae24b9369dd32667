"""The setting for chained feeds is read completely, or refused with the name of the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidings.aws.config import settings
from tidings.aws.config.settings import CoordinatorUrl
from tidings.core.model.filters import Filter
from tidings.core.replication.source import FallOff, Mod, Role, Selection, Source, addresses
from tidings.http.settings import WrongSetting

URL = "https://feed.example/feeds/main"
HERE = "https://here.example/feeds/main"
THERE = "https://there.example/feeds/main"
TABLE = "dynamodb://clusters?region=eu-west-1"


def parsed(coordinator: str = "", **sources: Any) -> settings.Settings:
    given = {each.variable: "x" for each in settings.SETTINGS if each.default is None}
    given |= {"TIDINGS_FEEDS": "main,orders", "TIDINGS_COORDINATOR": coordinator}
    given["TIDINGS_SOURCES"] = json.dumps(sources) if sources else ""
    return settings.Settings.read(given)


def test_D1_a_deployment_has_both_kinds_of_feeds() -> None:
    """A feed with a source is chained; every other feed is local."""
    found = parsed(main={"url": URL})

    assert found.sources == {"main": Source(URL)}
    assert "orders" in found.feeds
    assert parsed().sources == {}


def test_addresses_are_what_a_command_is_told() -> None:
    """It reads them as the setting, and learns which feeds are copies of what."""
    found = parsed(TABLE, main={"url": URL, "role": "elected", "address": HERE, "types": ["a"]})

    text = addresses(found.sources)

    assert parsed(**json.loads(text)).sources == {"main": Source(URL)}
    assert addresses({}) == ""


def test_a_source_says_everything_there_is() -> None:
    said = {
        "url": URL,
        "types": ["video"],
        "parents": ["user/ann"],
        "share": "mod:4:0+2",
        "fall_off": "wait",
        "restart_offset": 3,
        "role": "elected",
        "address": HERE,
        "cluster": "europe",
        "leaders": 2,
    }

    source = parsed(TABLE, main=said).sources["main"]

    chosen = Filter(frozenset({"video"}), frozenset({"user/ann"}), leave=True)
    assert source.selection == Selection(chosen, Mod(4, frozenset({0, 2})))
    assert (source.fall_off, source.restart_offset) == (FallOff.WAIT, 3)
    assert (source.role, source.address, source.cluster) == (Role.ELECTED, HERE, "europe")
    assert source.leaders == 2


def test_members_join_the_cluster_of_their_master() -> None:
    """A source may name another cluster."""
    source = parsed(TABLE, main={"url": URL, "role": "elected", "address": HERE}).sources["main"]

    assert source.cluster == URL


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"url": URL, "fall-off": "wait"}, "main: fall-off: is not known here"),
        ({}, "main: url: is missing"),
        ([], "main: must be a JSON object"),
        ({"url": "https://feed.example/"}, "main: url: must be https://HOST/feeds/NAME"),
        ({"url": "ftp://feed.example/feeds/main"}, "main: url: must be"),
        ({"url": "https://me:secret@feed.example/feeds/main"}, "main: url: must be"),
        ({"url": f"{URL}?x=1"}, "main: url: must be"),
        ({"url": "https://feed.example:x/feeds/main"}, "main: url: must be"),
        ({"url": URL, "types": "video"}, "main: types: must be an array of strings"),
        ({"url": URL, "share": "mod:2:2"}, "main: share: must be mod:PARTS"),
        ({"url": URL, "fall_off": "ignore"}, "main: fall_off: must be one of bootstrap, wait"),
        ({"url": URL, "role": "follower"}, "main: leader: a follower needs"),
        ({"url": URL, "leader": THERE}, "main: leader: is valid only with"),
        ({"url": URL, "role": "elected"}, "main: address: an elected feed needs"),
        ({"url": URL, "leaders": 2}, "main: role: a cluster and its leaders"),
        ({"url": URL, "leaders": 0}, "main: leaders: must be a whole number from 1"),
        ({"url": URL, "restart_offset": True}, "main: restart_offset: must be a whole number"),
        ({"url": URL}, "videos: feed: no such feed here"),
    ],
)
def test_D33_a_source_that_breaks_a_rule_is_refused(source: Any, told: str) -> None:
    """The error has the feed, the field and the rule; no field is ignored silently."""
    with pytest.raises(WrongSetting, match=told):
        parsed(**{told.partition(":")[0]: source})


def test_D41_elections_need_a_coordinator() -> None:
    """A static role needs none."""
    said = {"url": URL, "role": "elected", "address": HERE}
    with pytest.raises(WrongSetting, match="elections need TIDINGS_COORDINATOR"):
        parsed(main=said)
    assert parsed(main={"url": URL, "role": "follower", "leader": THERE}).coordinator is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dynamodb://clusters", CoordinatorUrl("clusters")),
        (TABLE, CoordinatorUrl("clusters", "eu-west-1")),
        (
            "dynamodb://arn%3Aaws%3Adynamodb%3Aeu-west-1%3A111122223333%3Atable%2Fclusters",
            CoordinatorUrl("arn:aws:dynamodb:eu-west-1:111122223333:table/clusters"),
        ),
        (
            "dynamodb://clusters?endpoint=http%3A%2F%2F127.0.0.1%3A8000",
            CoordinatorUrl("clusters", "", "http://127.0.0.1:8000"),
        ),
    ],
)
def test_a_coordinator_is_a_table(text: str, found: CoordinatorUrl) -> None:
    """The table may be in this Region or in another one."""
    assert parsed(text).coordinator == found


@pytest.mark.parametrize(
    "text", ["clusters", "s3://clusters", "dynamodb://a/b", "dynamodb://a?x=1"]
)
def test_what_is_no_coordinator_is_refused(text: str) -> None:
    """The value must name a table and nothing else."""
    with pytest.raises(WrongSetting, match="must be dynamodb://TABLE"):
        parsed(text)
