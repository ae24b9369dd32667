"""Event source mappings over the streams of DynamoDB Local."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidings.aws.config.deployment import StreamSource
from tidings.twin.lambdas.runtime_api import Answer, failure
from tidings.twin.pace import Pace
from tidings.twin.store import dynamodb_local, engine, tables
from tidings.twin.streams import records
from tidings.twin.streams.batches import Batch, Condition, Record
from tidings.twin.streams.poller import StreamPoller, ready_shards
from tidings.twin.streams.records import Shard

Event = dict[str, Any]
Behaviour = Callable[[Event], Answer]

SOURCE = StreamSource("log", "f", batch_size=4, window_s=0, age_max_s=3600, retries_max=2)
DONE, FAILED = Answer(b"{}"), failure("X", "y")


class Source:
    """A mapping on a table of its own; notes what it delivers and gives up."""

    def __init__(self, url: str) -> None:
        self._tables = engine.tables_client(url)
        self.behave: Behaviour = lambda event: DONE
        self._changed = asyncio.Condition()
        self._running = 0
        self.events: list[Event] = []
        self.given_up: list[tuple[list[int], Condition]] = []
        self.at_once_max = 0

    @property
    def tries(self) -> list[list[int]]:
        return [pages_of(event) for event in self.events]

    @property
    def delivered(self) -> list[int]:
        return [page for pages in self.tries for page in pages]

    def write(self, *pages: int) -> None:
        for page in pages:
            item: Any = {"feed": {"S": "main"}, "page": {"N": str(page)}, "b": {"B": b"x"}}
            self._tables.put_item(TableName=tables.name_of("log"), Item=item)

    def delete(self, page: int) -> None:
        key: Any = {"feed": {"S": "main"}, "page": {"N": str(page)}}
        self._tables.delete_item(TableName=tables.name_of("log"), Key=key)

    async def deliver(self, payload: bytes) -> Answer:
        self._running += 1
        self.at_once_max = max(self.at_once_max, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        event = json.loads(payload)
        answer = self.behave(event)
        async with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        return answer

    def give_up(self, shard: Shard, batch: Batch, condition: Condition) -> None:
        pages = pages_of({"Records": [record.event for record in batch.records]})
        self.given_up.append((pages, condition))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(condition), 60)


def pages_of(event: Event) -> list[int]:
    return [int(record["dynamodb"]["Keys"]["page"]["N"]) for record in event["Records"]]


def sequence_of(event: Event, page: int) -> str:
    sequence: str = event["Records"][pages_of(event).index(page)]["dynamodb"]["SequenceNumber"]
    return sequence


@pytest.fixture(scope="module")
def store_url() -> Iterator[str]:
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        store = runner.run(dynamodb_local.start(port=0, data=None, log=log))
        yield store.url
        runner.run(store.stop())


@pytest.fixture
def settings() -> StreamSource:
    return SOURCE


@pytest.fixture
def source(runner: asyncio.Runner, store_url: str, settings: StreamSource) -> Iterator[Source]:
    """A mapping whose table holds the pages 1 to 3 when it starts."""
    source = Source(store_url)
    arn = _fresh_stream(store_url)
    source.write(1, 2, 3)
    poller = StreamPoller(
        *(settings, engine.streams_client(store_url), arn, source.deliver, source.give_up),
        Pace(idle_s=0.05),
        retry_first_s=0.01,
    )
    polling = runner.get_loop().create_task(poller.run())
    yield source
    polling.cancel()
    runner.run(_ended(polling))


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task, return_exceptions=True)


def _fresh_stream(url: str) -> str:
    client = engine.tables_client(url)
    name = tables.name_of("log")
    if name in client.list_tables()["TableNames"]:
        client.delete_table(TableName=name)
    tables.create(client)
    return client.describe_table(TableName=name)["Table"]["LatestStreamArn"]


async def test_records_from_before_and_after_the_start_arrive_in_order(source: Source) -> None:
    """TRIM_HORIZON: nothing is missed, one invocation at a time, batches within their size."""
    await source.until(lambda: source.delivered == [1, 2, 3])
    await asyncio.to_thread(source.write, *range(4, 30))
    await source.until(lambda: len(source.delivered) == 29)

    assert source.delivered == list(range(1, 30))
    assert source.at_once_max == 1
    assert max(len(pages) for pages in source.tries) <= SOURCE.batch_size


async def test_an_event_is_that_of_a_stream_with_keys_only(source: Source) -> None:
    """Keys, sequence number and creation time, in the form Lambda sends."""
    await source.until(lambda: bool(source.events))
    record = source.events[0]["Records"][0]

    assert record["eventName"] == "INSERT"
    assert record["eventSource"] == "aws:dynamodb"
    assert record["eventSourceARN"].startswith("arn:aws:dynamodb:")
    assert record["dynamodb"]["Keys"] == {"feed": {"S": "main"}, "page": {"N": "1"}}
    assert record["dynamodb"]["StreamViewType"] == "KEYS_ONLY"
    assert "NewImage" not in record["dynamodb"]
    assert record["dynamodb"]["SequenceNumber"].isdigit()
    assert record["dynamodb"]["ApproximateCreationDateTime"] > 1_700_000_000


async def test_a_poisoned_record_is_isolated_and_given_up(source: Source) -> None:
    """Halving finds it, its retries are used up, the others arrive and nothing overtakes."""
    source.behave = lambda event: FAILED if 2 in pages_of(event) else DONE
    await asyncio.to_thread(source.write, 4, 5)
    await source.until(lambda: 5 in source.delivered)

    good = [page for pages in source.tries if 2 not in pages for page in pages]
    assert source.given_up == [([2], Condition.RETRIES)]
    assert source.tries.count([2]) == SOURCE.retries_max + 1
    assert good == [1, 3, 4, 5]


async def test_a_reported_record_and_the_rest_are_tried_again(source: Source) -> None:
    """What came before it is not."""
    reported: list[str] = []

    def behave(event: Event) -> Answer:
        if 2 not in pages_of(event) or reported:
            return DONE
        reported.append(sequence_of(event, 2))
        failures = [{"itemIdentifier": reported[0]}]
        return Answer(json.dumps({"batchItemFailures": failures}).encode())

    source.behave = behave
    await source.until(lambda: source.delivered.count(3) == 2)

    assert source.tries == [[1, 2, 3], [2, 3]]
    assert source.given_up == []


@pytest.mark.parametrize("settings", [replace(SOURCE, window_s=5)])
async def test_records_of_a_window_arrive_together(source: Source) -> None:
    """A window collects what comes after its first record, up to the batch's size."""
    await asyncio.to_thread(source.write, 4)
    await source.until(lambda: 4 in source.delivered)

    assert source.tries == [[1, 2, 3, 4]]


async def test_a_deleted_item_is_a_record_too(source: Source) -> None:
    """REMOVE arrives like any other; the handler decides."""
    await asyncio.to_thread(source.delete, 2)
    await source.until(lambda: len(source.delivered) == 4)
    names = [record["eventName"] for event in source.events for record in event["Records"]]

    assert source.delivered == [1, 2, 3, 2]
    assert names == ["INSERT"] * 3 + ["REMOVE"]


@pytest.mark.parametrize("settings", [replace(SOURCE, kinds=("INSERT",))])
async def test_other_kinds_of_records_invoke_nothing(source: Source) -> None:
    """As Lambda's filter has it; what comes behind them arrives."""
    await asyncio.to_thread(source.delete, 2)
    await asyncio.to_thread(source.write, 4)
    await source.until(lambda: 4 in source.delivered)

    assert source.delivered == [1, 2, 3, 4]


def test_records_that_have_become_too_old_are_given_up_untried() -> None:
    """Those that are young enough are tried."""
    tried: list[bytes] = []
    given_up: list[tuple[Batch, Condition]] = []

    async def deliver(payload: bytes) -> Answer:
        tried.append(payload)
        return DONE

    nowhere: Any = None
    poller = StreamPoller(
        *(SOURCE, nowhere, "arn", deliver, lambda s, b, c: given_up.append((b, c)), Pace())
    )
    old, young = Record("1", 0, {"n": 1}), Record("2", 2**53, {"n": 2})
    asyncio.run(poller.process(Shard("arn", "shard"), Batch((old, young))))

    assert given_up == [(Batch((old,)), Condition.AGE)]
    assert [json.loads(payload) for payload in tried] == [{"Records": [{"n": 2}]}]


def test_what_is_given_up_is_kept_with_its_payload(tmp_path: Path) -> None:
    """The document of an S3 failure destination: which shard, which records, why, and all."""
    batch = Batch((Record("7", 0, {"n": 7}), Record("8", 1500, {"n": 8})), failures=3)
    arn = "arn:aws:lambda:us-east-1:000000000000:function:f"
    shard = Shard("stream", "shard-1")
    file = records.save_given_up(tmp_path, arn, shard, batch, Condition.RETRIES)
    document = json.loads(file.read_text())

    assert file.relative_to(tmp_path).parts[:2] == ("f", "shard-1")
    assert document["requestContext"]["functionArn"] == arn
    assert document["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert document["requestContext"]["approximateInvokeCount"] == 3
    assert document["DDBStreamBatchInfo"] == {
        "shardId": "shard-1",
        "startSequenceNumber": "7",
        "endSequenceNumber": "8",
        "approximateArrivalOfFirstRecord": "1970-01-01T00:00:00.000Z",
        "approximateArrivalOfLastRecord": "1970-01-01T00:00:01.500Z",
        "batchSize": 2,
        "streamArn": "stream",
    }
    assert json.loads(document["payload"]) == {"Records": [{"n": 7}, {"n": 8}]}


SPLIT: Mapping[str, str | None] = {"a": "trimmed", "b": "a", "c": "a", "d": "c", "e": None}


@pytest.mark.parametrize(
    ("followed", "finished", "ready"),
    [
        ("", "", ["a", "e"]),
        ("ae", "", []),
        ("ae", "e", []),
        ("ae", "a", ["b", "c"]),
        ("abc", "ab", ["e"]),
        ("abce", "ac", ["d"]),
    ],
)
def test_a_shard_is_read_only_after_its_parent(
    followed: str, finished: str, ready: list[str]
) -> None:
    """A parent that the stream no longer has holds nothing back."""
    assert ready_shards(SPLIT, followed=followed, finished=finished) == ready
