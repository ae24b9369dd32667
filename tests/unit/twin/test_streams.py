"""Event source mappings: rules after a failure, GetRecords over HTTP, and pollers of streams."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.twin import dynamodb_local, store, streams
from tests.twin.lambda_api import Answer, failure
from tests.twin.streams import (
    Batch,
    DiscardReason,
    Outcome,
    PollInterval,
    Record,
    StreamPoller,
    ready_shards,
)
from tidings.aws.config.deployment import StreamSource


def records(*sequences: str, created_ms: int = 0) -> tuple[Record, ...]:
    return tuple(Record(sequence, created_ms, {}) for sequence in sequences)


BATCH = Batch(records("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("payload", "failed_at"),
    [
        (b"null", None),
        (b"", None),
        (b"{}", None),
        (b'{"batchItemFailures":[]}', None),
        (b'{"batchItemFailures":null}', None),
        (b'{"batchItemFailures":[{"itemIdentifier":"c"}]}', 2),
        (b'{"batchItemFailures":[{"itemIdentifier":"d"},{"itemIdentifier":"b"}]}', 1),
        (b'{"batchItemFailures":[{"itemIdentifier":""}]}', 0),
        (b'{"batchItemFailures":[{"itemIdentifier":null}]}', 0),
        (b'{"batchItemFailures":[{"wrong":"c"}]}', 0),
        (b'{"batchItemFailures":[{"itemIdentifier":"nobody"}]}', 0),
        (b'{"batchItemFailures":"c"}', 0),
        (b"{", 0),
    ],
)
def test_an_answer_says_from_where_on_a_batch_failed(payload: bytes, failed_at: int | None) -> None:
    """The lowest reported record counts; what cannot be understood fails the whole batch."""
    assert streams.first_failure(Answer(payload), BATCH) == failed_at


def test_a_function_error_fails_the_whole_batch() -> None:
    """The error counts, whatever the document says."""
    answer = Answer(json.dumps({"batchItemFailures": []}).encode(), failure("X", "y").error)

    assert streams.first_failure(answer, BATCH) == 0


@pytest.mark.parametrize(
    ("batch", "failed_at", "next_batches"),
    [
        (BATCH, None, ()),
        (BATCH, 2, (Batch(records("c", "d")),)),
        (Batch(BATCH.records[:3], 1), 0, (Batch(records("a"), 1), Batch(records("b", "c"), 1))),
    ],
    ids=["success", "a part", "the whole"],
)
def test_what_follows_a_batch(
    batch: Batch, failed_at: int | None, next_batches: tuple[Batch, ...]
) -> None:
    """The source continues at the failed record, or with two halves; this costs no retry."""
    assert streams.settle(batch, failed_at, retries_max=1) == Outcome(next_batches)


@pytest.mark.parametrize(("failures", "given_up"), [(0, False), (1, False), (2, True)])
def test_a_single_record_is_given_up_after_its_retries(failures: int, given_up: bool) -> None:
    """Two retries are three tries."""
    outcome = streams.settle(Batch(records("a"), failures), 0, retries_max=2)
    next_batch = Batch(records("a"), failures + 1)

    assert outcome == (Outcome(given_up=next_batch) if given_up else Outcome((next_batch,)))


def test_old_records_are_told_from_young_ones() -> None:
    """A record exactly at the limit is still young."""
    old, limit = records("a", created_ms=999), records("b", created_ms=1000)
    split = streams.drop_old(Batch(old + limit), now_ms=61_000, age_max_s=60)

    assert split == (Batch(old), Batch(limit))


Event = dict[str, Any]
Behaviour = Callable[[Event], Answer]

SOURCE = StreamSource("log", "f", batch_size=4, window_s=0, age_max_s=3600, retries_max=2)
DONE, FAILED = Answer(b"{}"), failure("X", "y")


class Source:
    """A mapping on a table of its own; notes what it delivers and gives up."""

    def __init__(self, url: str) -> None:
        self._tables = store.tables_client(url)
        self.behave: Behaviour = lambda event: DONE
        self._changed = asyncio.Condition()
        self._running = 0
        self.events: list[Event] = []
        self.given_up: list[tuple[list[int], DiscardReason]] = []
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
            self._tables.put_item(TableName=store.table_name("log"), Item=item)

    def delete(self, page: int) -> None:
        key: Any = {"feed": {"S": "main"}, "page": {"N": str(page)}}
        self._tables.delete_item(TableName=store.table_name("log"), Key=key)

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

    def give_up(self, batch: Batch, condition: DiscardReason) -> None:
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
    """Yield a mapping for a table that has the pages 1 to 3 when it starts."""
    source = Source(store_url)
    client = store.tables_client(store_url)
    name = store.table_name("log")
    if name in client.list_tables()["TableNames"]:
        client.delete_table(TableName=name)
    store.create_tables(client)
    arn = client.describe_table(TableName=name)["Table"]["LatestStreamArn"]
    source.write(1, 2, 3)
    poller = StreamPoller(
        source=settings,
        client=store.streams_client(store_url),
        stream_arn=arn,
        deliver=source.deliver,
        give_up=source.give_up,
        interval=PollInterval(idle_s=0.05),
        retry_first_s=0.01,
    )
    polling = runner.get_loop().create_task(poller.run())
    yield source
    polling.cancel()
    runner.run(_ended(polling))


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task, return_exceptions=True)


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
    assert source.given_up == [([2], DiscardReason.RETRIES)]
    assert source.tries.count([2]) == SOURCE.retries_max + 1
    assert good == [1, 3, 4, 5]


async def test_a_reported_record_and_the_rest_are_tried_again(source: Source) -> None:
    """The records before it are not delivered again."""
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
    """Lambda's filter does the same; later records arrive."""
    await asyncio.to_thread(source.delete, 2)
    await asyncio.to_thread(source.write, 4)
    await source.until(lambda: 4 in source.delivered)

    assert source.delivered == [1, 2, 3, 4]


def test_records_that_have_become_too_old_are_given_up_untried() -> None:
    """Newer records are delivered."""
    tried: list[bytes] = []
    given_up: list[tuple[Batch, DiscardReason]] = []

    async def deliver(payload: bytes) -> Answer:
        tried.append(payload)
        return DONE

    nowhere: Any = None
    poller = StreamPoller(
        source=SOURCE,
        client=nowhere,
        stream_arn="arn",
        deliver=deliver,
        give_up=lambda b, c: given_up.append((b, c)),
        interval=PollInterval(),
    )
    old, young = Record("1", 0, {"n": 1}), Record("2", 2**53, {"n": 2})
    asyncio.run(poller.process(Batch((old, young))))

    assert given_up == [(Batch((old,)), DiscardReason.AGE)]
    assert [json.loads(payload) for payload in tried] == [{"Records": [{"n": 2}]}]


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
