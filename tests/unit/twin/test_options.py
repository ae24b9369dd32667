"""The objects that a twin's options refer to: its functions, producing tables, and upstreams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.twin import Twin, environment, store, workers
from tests.twin.options import NoFunctions, Options, find_functions
from tests.twin.runtime_api import Answer
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.replication.source import FallOff, Role
from tidings.server import feed_options
from tidings.server.processes import PACKED, Problem

ROOT = Path(__file__).parents[3]


def test_a_checkout_runs_its_own_files() -> None:
    """This holds for an editable install too, which developers use."""
    found = find_functions()

    assert found.functions == ROOT / "functions"
    assert found.layers == (ROOT / "src",)


def test_a_wheel_runs_what_it_carries(tmp_path: Path) -> None:
    """This holds even inside a checkout, which may have handlers of another version."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "pyproject.toml").touch()
    here = tmp_path / "site-packages" / "tidings" / "twin"
    (here / PACKED).mkdir(parents=True)

    found = find_functions(here)

    assert found.functions == here / "packed" / "functions"
    assert found.layers == ()


def test_neither_is_told_in_one_sentence(tmp_path: Path) -> None:
    """The sentence says what to do about it."""
    with pytest.raises(NoFunctions, match="--functions"):
        find_functions(tmp_path)


VIDEOS = {
    "feed": "videos",
    "type": "video",
    "id": "{{channel}}/{{number}}",
    "parents": ["user/{{owners}}"],
}
KEY = ("channel", "number")


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    capture = f"owners-videos={json.dumps(VIDEOS)}"
    with Twin("--feeds", "main,videos", "--capture", capture) as running:
        yield running


@pytest.fixture(scope="module")
def owner(twin: Twin) -> Any:
    """Makes its table while the twin runs; knows nothing of feeds."""
    client = store.tables_client(twin.dynamodb_url)
    client.create_table(
        TableName="owners-videos",
        KeySchema=[
            {"AttributeName": "channel", "KeyType": "HASH"},
            {"AttributeName": "number", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "channel", "AttributeType": "S"},
            {"AttributeName": "number", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    return client


def item(channel: str, number: int, *owners: str) -> dict[str, Any]:
    found: dict[str, Any] = {"channel": {"S": channel}, "number": {"N": str(number)}}
    return found | ({"owners": {"SS": list(owners)}} if owners else {})


def logged(twin: Twin, operations: int) -> list[tuple[str, str, list[str]]]:
    """Return the log of the feed, as soon as it has *operations* entries."""
    deadline = time.monotonic() + 20
    found: list[dict[str, Any]] = []
    while len(found) < operations:
        assert time.monotonic() < deadline, found
        answer = httpx.get(f"{twin.url}feeds/videos/changes", trust_env=False, timeout=30)
        found = [each["data"] for each in answer.json()["changes"]]
        time.sleep(0.05)
    return [(each["event"], each["id"], each["parents"]) for each in found]


def test_what_is_written_in_a_table_is_told_by_a_feed(twin: Twin, owner: Any) -> None:
    """Inserts, updates and deletes, in order, with parents from before a delete; a bad key waits
    in the outbox with the reason, and holds up nothing."""
    owner.put_item(TableName="owners-videos", Item=item("a", 1, "ann", "bob"))
    owner.put_item(TableName="owners-videos", Item=item("a", 1, "bob"))
    owner.put_item(TableName="owners-videos", Item=item("b/c", 2))
    owner.delete_item(TableName="owners-videos", Key=item("a", 1))

    assert logged(twin, operations=3) == [
        ("insert", "a/1", ["user/ann", "user/bob"]),
        ("update", "a/1", ["user/bob"]),
        ("delete", "a/1", ["user/bob"]),
    ]
    (aside,) = owner.scan(TableName="tidings-local-outbox")["Items"]
    assert aside["feed"] == {"S": "refused#videos"}
    assert "an attribute contains the text that follows it" in aside["reason"]["S"]
    assert json.loads(aside["body"]["S"])["keys"] == {"channel": "b/c", "number": "2"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("videos", "--capture videos: must be TABLE=JSON"),
        ('videos={"type":"v"}', "--capture videos: id: is required"),
        ('videos={"type":"v","id":"{{a}}","feed":"A"}', "--capture videos: feed: must be 1 to 63"),
        ('videos={"type":"v","id":"{{a}}","feed":"b"}', "feed: no such feed here"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(text: str, sentence: str) -> None:
    """The error is one sentence."""
    with pytest.raises(Problem) as caught:
        environment.check(Options(captures=(text,)))
    assert str(caught.value).startswith(sentence)


URL = "http://127.0.0.1:8042"


def test_one_option_chains_a_feed() -> None:
    """The feed has the name in the address; without one it is the default feed."""
    assert feed_options.chained_feeds(Options(chain_from=URL)) == {
        DEFAULT_FEED: f"{URL}/feeds/main"
    }
    orders = Options(chain_from=f"{URL}/feeds/orders/")
    assert feed_options.chained_feeds(orders) == {"orders": f"{URL}/feeds/orders"}
    assert environment.parse_options(orders).feeds == {"main", "orders"}
    assert set(environment.parse_options(orders).sources) == {"orders"}


def test_D1_local_feeds_stay_beside_chained_ones() -> None:
    """Each has its own name; options of the source apply to all chained ones."""
    options = Options(
        feeds="main,mine",
        chains=(f"theirs={URL}", f"more={URL}/feeds/x"),
        source=("types=a,b", "fall_off=wait", "restart_offset=3"),
    )
    environment.check(options)
    sources = environment.parse_options(options).sources
    assert environment.parse_options(options).feeds == {"main", "mine", "theirs", "more"}
    assert {feed: source.url for feed, source in sources.items()} == {
        "theirs": f"{URL}/feeds/main",
        "more": f"{URL}/feeds/x",
    }
    source = sources["more"]
    assert source.selection.filter.types == frozenset({"a", "b"})
    assert (source.fall_off, source.restart_offset) == (FallOff.WAIT, 3)


def test_an_elected_twin_is_at_the_address_where_it_listens() -> None:
    """The common case therefore needs only the role and the table."""
    options = Options(
        port=8052, chain_from=URL, source=("role=elected",), coordinator="dynamodb://seats"
    )
    (source,) = environment.parse_options(options).sources.values()
    assert (source.role, source.address) == (Role.ELECTED, "http://127.0.0.1:8052/feeds/main")
    assert environment.parse_options(options).coordinator is not None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(chains=("theirs",)), "must be FEED=URL"),
        (Options(source=("types=a",)), "--chain-from or --chain is needed"),
        (Options(chain_from=URL, source=("types",)), "must be NAME=VALUE"),
        (Options(chain_from=URL, source=("leader=x",)), "leader: must be https://HOST"),
        (Options(chain_from=URL, source=("color=red",)), "color: is not known here"),
        (Options(chain_from="ftp://x"), "url: must be https://HOST"),
    ],
)
def test_what_breaks_a_rule_does_not_start(options: Options, told: str) -> None:
    """One sentence says why."""
    with pytest.raises(Problem, match=told):
        environment.check(options)


def test_every_copy_begins_at_once_and_has_a_worker() -> None:
    """A relay that could not start is started again; there are more workers than copies."""
    asked: list[tuple[str, bytes]] = []

    async def invoke(name: str, payload: bytes) -> Answer:
        asked.append((name, payload))
        return Answer(b"", "Runtime.ExitError" if len(asked) == 1 else None)

    with asyncio.Runner() as runner:
        runner.run(workers.begin_relay("main", invoke))
    assert asked == [("follow-relay", b'{"ring": "main"}')] * 2
    assert workers.relay_workers({"main", "orders"}) == {"follow-relay": 3}
