"""Behaviour of AWS's own engine alone: the cost of writes, the records of streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.stores import Stores, environment, on_dynamodb
from tests.contract.test_state import removed_parents, row
from tidings.aws.config.deployment import TABLES
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.log_view import LogView
from tidings.core.consumers.service import Acknowledgement, ConsumerRepository, Consumers, Reason
from tidings.core.log.reader import Reader
from tidings.core.model.cursors import Place
from tidings.core.model.pages import Page, encode

pytestmark = pytest.mark.java

AT = 1_763_000_000_123
NEVER_MS = 4_000_000_000_000  # in 2096: the engine deletes what has expired, while a test looks


@pytest.fixture
def stores(dynamodb_local: DynamoDBClient) -> Stores:
    return on_dynamodb(dynamodb_local)


@pytest.fixture
def spent(dynamodb_local: DynamoDBClient) -> Iterator[dict[str, float]]:
    """Collect the capacity units of the calls inside, by table."""
    units: dict[str, float] = {}

    def ask(params: dict[str, Any], **_: object) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def add(parsed: dict[str, Any], **_: object) -> None:
        consumed = parsed.get("ConsumedCapacity", [])
        for each in consumed if isinstance(consumed, list) else [consumed]:
            table = each["TableName"]
            units[table] = units.get(table, 0) + each["CapacityUnits"]

    events = dynamodb_local.meta.events
    events.register("provide-client-params.dynamodb", ask)
    events.register("after-call.dynamodb", add)
    yield units
    events.unregister("provide-client-params.dynamodb", ask)
    events.unregister("after-call.dynamodb", add)


def lines(count: int) -> list[str]:
    """Operations as producers send them: ids that do not repeat, a few channels, one type."""
    digits = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]
    return [
        f'{{"event":"update","timestamp":"2026-11-20T17:19:{number % 60:02d}.94Z",'
        f'"parents":["user/x{digit[:6]}","channel/music"],"type":"video","id":"x{digit[-7:]}"}}'
        for number, digit in enumerate(digits)
    ]


class TestCosts:
    @pytest.mark.parametrize(("count", "units"), [(1, 1), (100, 2)])
    def test_an_append_costs_few_write_units(
        self, stores: Stores, feed: str, spent: dict[str, float], count: int, units: int
    ) -> None:
        """One for the counter; for the page one for a single operation, two for a hundred.

        The first number of a feed costs one more, because the sweep has to visit the feed.
        """
        stores.log.take(feed)
        assert spent == {"control": 2}
        spent.clear()
        number = stores.log.take(feed)
        body = encode(lines(count))
        stores.log.put(feed, Page(number, body, "a" * 32, AT, NEVER_MS))
        assert spent == {"control": 1, "log": units}

    def test_a_row_costs_one_write_unit(
        self, stores: Stores, feed: str, spent: dict[str, float]
    ) -> None:
        """Whatever the number of rows in a batch."""
        stores.state.write(feed, [row(f"video/{n}", line=lines(1)[0]) for n in range(30)])
        assert spent == {"state": 30}

    def test_removed_parents_cost_a_read_an_object_and_a_write_a_page(
        self, stores: Stores, feed: str, spent: dict[str, float]
    ) -> None:
        """A hundred objects in two pages; their removed parents are two items of one query."""
        rows = [row(f"video/{n}", line=line) for n, line in enumerate(lines(100))]
        stores.state.write(feed, rows)
        spent.clear()
        assert len(stores.state.find(feed, [each.key for each in rows])) == 100
        assert spent == {"state": 100}
        spent.clear()
        left = {slot: (f"user/x{slot:06}",) for slot in range(50)}
        stores.removed_parents.write(feed, [removed_parents(page, left) for page in (1, 2)])
        assert spent == {"state": 2}
        spent.clear()
        assert len(stores.removed_parents.read(feed, 1, 2)) == 2
        assert spent == {"state": 1}

    def test_reading_is_billed_by_size(
        self, stores: Stores, feed: str, spent: dict[str, float]
    ) -> None:
        """Thirty pages of one operation, some 250 bytes each, are two units of 4 KB."""
        for number in range(1, 31):
            body = encode(lines(1))
            stores.log.put(feed, Page(number, body, "a" * 32, AT, NEVER_MS))
        spent.clear()
        assert len(stores.log.read(feed, 0)) == 30
        assert spent == {"log": 2}

    def test_a_catch_up_is_billed_by_half(
        self, stores: Stores, feed: str, spent: dict[str, float]
    ) -> None:
        """Some 6 MB of pages: half a unit for 4 KB, but for the end, which is read strongly."""
        body, count = b"x" * 150_000, 40
        for number in range(1, count + 1):
            stores.log.put(feed, Page(number, body, "a" * 32, AT, NEVER_MS))
        reader = Reader(
            log=stores.log, checkpoints=stores.followers, clock=lambda: AT, count=lambda *_: None
        )
        spent.clear()
        after, more = 0, True
        while more:
            run = reader.read(feed, after)
            after, more = max([after, *(page.number for page in run.pages)]), run.more
        assert after == count
        assert spent["log"] == pytest.approx(count * 150_000 / 4096 / 2, rel=0.02)

    def test_an_acknowledgement_is_two_reads_and_a_write(
        self, stores: Stores, feed: str, spent: dict[str, float]
    ) -> None:
        """However much it covers. A change by an operator also writes a note and a mark for the
        sweep.

        In a transaction, AWS bills each write twice.
        """
        worker, first = Worker(stores, feed), Place(1, 0, AT // 1000)
        spent.clear()
        worker.acknowledge(through=first, sending=replace(first, slot=500))
        assert spent == {"control": 3}
        spent.clear()
        worker.consumers.pause(feed, "index", Reason("ann", "a test"), paused=True)
        assert spent == {"control": 1 + 2 + 1}


class Worker:
    """A worker of a registered, leased consumer on these stores."""

    def __init__(self, stores: Stores, feed: str) -> None:
        reader = Reader(
            log=stores.log, checkpoints=stores.followers, clock=lambda: AT, count=lambda *_: None
        )
        view = LogView(reader)
        self.feed = feed
        self.consumers = Consumers(ConsumerRepository(stores.consumers), view, lambda: AT)
        stores.log.take(feed)
        self.consumers.register(feed, "index", Consumer(feed, "index"), None)
        self.fence = self.consumers.lease(feed, "index", "w").consumer.fence

    def acknowledge(self, *, through: Place, sending: Place) -> None:
        said = Acknowledgement(through=through, sending=sending)
        self.consumers.acknowledge(self.feed, "index", self.fence, said)


class TestStream:
    def test_a_record_holds_the_keys_and_nothing_else(
        self, dynamodb_local: DynamoDBClient, stores: Stores, feed: str
    ) -> None:
        """It names the feed that moved; the pages are read from the log."""
        stores.log.put(feed, Page(1, "{}", "a" * 32, AT, NEVER_MS))
        ours = [each for each in records(dynamodb_local) if each["Keys"]["feed"]["S"] == feed]
        assert [each["Keys"]["page"] for each in ours] == [{"N": "1"}]
        assert [each["StreamViewType"] for each in ours] == ["KEYS_ONLY"]
        assert "NewImage" not in ours[0]

    def test_every_table_has_its_expiry(self, dynamodb_local: DynamoDBClient) -> None:
        """The attribute in the blueprint."""
        for table in TABLES:
            answer = dynamodb_local.describe_time_to_live(TableName=table.name)
            expiry = answer["TimeToLiveDescription"]
            assert expiry["TimeToLiveStatus"] == "ENABLED"
            assert expiry["AttributeName"] == table.ttl_attribute


def records(client: DynamoDBClient) -> list[dict[str, Any]]:
    """Return all records of the log's stream so far."""
    with environment({}):
        streams = boto3.client("dynamodbstreams", endpoint_url=client.meta.endpoint_url)
    arn = client.describe_table(TableName="log")["Table"]["LatestStreamArn"]
    found: list[dict[str, Any]] = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            answer = streams.get_records(ShardIterator=iterator)
            if not answer["Records"]:
                break
            found += [dict(each["dynamodb"]) for each in answer["Records"]]
            iterator = answer.get("NextShardIterator", "")
    return found
