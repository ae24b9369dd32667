"""A queue of SQS as a source: moto."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.compat.oplog.wire import until
from tests.unit.pipelines.followed import known
from tests.unit.pipelines.test_broker_sources import numbered, opened, take_operations
from tidings.core.model.operations import line_from
from tidings.pipelines import SqsQueue, aws
from tidings.pipelines.ingest_source import BATCH
from tidings.pipelines.messages import WrongPipeline

REGION = "eu-west-1"


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create an empty account of AWS in this process; received messages reappear after a second."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(aws, "WAIT_S", 0)
    monkeypatch.setattr(aws, "HIDDEN_S", 1)
    with mock_aws():
        yield


class Queue:
    def __init__(self, name: str, **attributes: str) -> None:
        self.client: Any = boto3.client("sqs", region_name=REGION)
        if name.endswith(".fifo"):
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        self.url = self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def send(self, *objects: dict[str, Any], group: str = "g") -> None:
        options = {"MessageGroupId": group} if self.url.endswith(".fifo") else {}
        for each in objects:
            self.client.send_message(QueueUrl=self.url, MessageBody=json.dumps(each), **options)

    def left(self) -> int:
        """Return the number of messages that are not deleted, received or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(each) for each in answer["Attributes"].values())

    def reader(self, **options: Any) -> SqsQueue:
        return SqsQueue(self.url, type="video", **options)


@pytest.mark.parametrize("name", ["in.fifo", "in"])
def test_a_reader_that_ends_gives_back_what_the_feed_has_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns them at once: otherwise a group of a FIFO queue would be blocked until they
    reappear."""
    monkeypatch.setattr(aws, "HIDDEN_S", 300)
    queue = Queue(name)
    queue.send(*numbered(1, 2))
    reader = queue.reader()
    batches = opened(reader)
    take_operations(batches, 2)
    queue.send({"id": ""}, *numbered(3))
    with pytest.raises(WrongPipeline):
        list(batches)
    for _ in range(2):
        reader.close()
        reader.open("p.app", {}, known)
        with pytest.raises(WrongPipeline):
            list(islice(reader.read(), 9))


@pytest.mark.parametrize("name", ["in.fifo", "in"])
def test_a_queue_is_deleted_from_behind_what_the_feed_has(name: str) -> None:
    """Messages that were not deleted are received again, and skipped if the feed has them."""
    queue = Queue(name)
    queue.send(*numbered(1, 2, 3))
    found, left = take_operations(
        opened(queue.reader()), 3
    )  # in the feed, and its reader is killed
    assert (len(left[queue.url]["taken"]), queue.left()) == (3, 3)

    queue.send(*numbered(4))
    found += drained(queue, left)
    assert [each["id"] for each in found] == ["1", "2", "3", "4"]


def drained(queue: Queue, state: Any) -> list[dict[str, Any]]:
    """Return the operations of a reader until its queue is empty."""
    reader, found = queue.reader(), list[dict[str, Any]]()
    reader.open("p.app", state, known)
    for batch in reader.read():
        found += batch.operations
        if queue.left() == 0:
            return found
    raise AssertionError


def test_many_messages_are_one_batch() -> None:
    """A batch has all messages that are available at once."""
    queue = Queue("many")
    queue.send(*numbered(*range(60)))
    batch = next(opened(queue.reader()))
    assert 20 <= len(batch.operations) <= BATCH


def test_a_message_that_comes_twice_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is deleted by its valid receipt."""
    monkeypatch.setattr(aws, "HIDDEN_S", 0)
    queue = Queue("twice")
    queue.send(*numbered(1))
    batches = opened(queue.reader())
    assert [each["id"] for each in next(batches).operations] == ["1"]
    queue.send(*numbered(2))
    assert [each["id"] for each in take_operations(batches, 1)[0]] == ["2"]
    assert queue.left() == 1


class Failing:
    """A client of a queue that deletes one message fewer than it is asked to, once."""

    def __init__(self, client: Any) -> None:
        self.client, self.failed = client, False
        self.receive_message = client.receive_message

    def delete_message_batch(self, QueueUrl: str, Entries: Sequence[dict[str, str]]) -> Any:
        if self.failed:
            return self.client.delete_message_batch(QueueUrl=QueueUrl, Entries=Entries)
        self.failed = True
        failure = {"Id": Entries[0]["Id"], "SenderFault": False, "Code": "InternalError"}
        answer = self.client.delete_message_batch(QueueUrl=QueueUrl, Entries=Entries[1:])
        return {**answer, "Failed": [failure]}


def test_what_was_not_deleted_is_deleted_when_it_comes_again() -> None:
    """It is in the feed once, and known until then."""
    queue = Queue("failing")
    queue.send(*numbered(1, 2, 3))
    batches = opened(queue.reader(client=Failing(queue.client)))
    assert len(take_operations(batches, 3)[0]) == 3
    again = next(batches)
    assert (again.operations, len(again.state[queue.url]["taken"])) == ([], 1)
    queue.send(*numbered(4))
    found, left = take_operations(batches, 1)
    assert ([each["id"] for each in found], len(left[queue.url]["taken"])) == (["4"], 1)
    assert queue.left() == 1


def test_what_never_comes_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are dropped once the queue is empty, after the time of a redelivery."""
    monkeypatch.setattr(aws, "HIDDEN_S", 0)
    queue = Queue("forgotten")
    reader = queue.reader()
    reader.open("p.app", {queue.url: {"taken": ["a", "b"]}}, known)
    batches = reader.read()
    assert next(batches).state == {}
    queue.send(*numbered(1))
    assert len(take_operations(batches, 1)[1][queue.url]["taken"]) == 1


def test_not_more_is_known_than_an_operation_holds() -> None:
    """This holds for a queue that is never empty; ids that were taken last are kept longest."""
    queue = Queue("known")
    queue.send(*numbered(1))
    many = [f"{number:036}" for number in range(aws.KNOWN)]
    reader = queue.reader()
    reader.open("p.app", {queue.url: {"taken": many}}, known)
    batch = next(reader.read())
    assert len(batch.state[queue.url]["taken"]) == aws.KNOWN
    assert batch.state[queue.url]["taken"][:-1] == many[1:]
    line_from({"event": "update", "type": "a", "id": "b", "data": dict(batch.state)}, now_ms=0)


def test_what_is_no_message_ends_the_reader_or_stays() -> None:
    """It stays for the queue's redrive policy."""
    dead = Queue("dead")
    arn = f"arn:aws:sqs:{REGION}:123456789012:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    queue = Queue("poison", RedrivePolicy=policy)
    queue.send({"id": ""}, *numbered(1))
    with pytest.raises(
        WrongPipeline, match=r"poison, message [0-9a-f-]{36}: a document has no 'id'"
    ):
        list(opened(queue.reader()))
    queue.send(*numbered(2))
    assert [each["id"] for each in take_operations(opened(queue.reader(rejects=True)), 1)[0]] == [
        "2"
    ]
    until(lambda: moved(queue, dead))


@pytest.mark.parametrize(
    ("name", "read"), [("poison.fifo", ["1", "3"]), ("poison", ["1", "2", "3"])]
)
def test_what_is_beside_what_is_no_message_is_read(name: str, read: list[str]) -> None:
    """Otherwise it would be moved to the dead letters with it; later messages of its group wait for
    it.
    """
    queue = Queue(name)
    queue.send(*numbered(1), {"id": ""}, *numbered(2))
    queue.send(*numbered(3), group="another")
    reader = queue.reader()
    batches = opened(reader)
    found, left = take_operations(batches, 1)
    assert [each["id"] for each in found] == read
    assert len(left[queue.url]["taken"]) == len(read)
    with pytest.raises(WrongPipeline, match=r"poison.*: a document has no 'id'"):
        next(batches)
    assert queue.left() == 4 - len(read)


def moved(queue: Queue, dead: Queue) -> bool:
    """Receive once more, so that the queue moves messages that were received too often."""
    queue.client.receive_message(QueueUrl=queue.url, VisibilityTimeout=0)
    return dead.left() == 1


def test_killed_at_any_step_nothing_is_lost_or_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed before a batch is in the feed, after that, or during the deletes, again and
    again."""
    monkeypatch.setattr(aws, "HIDDEN_S", 0)
    monkeypatch.setattr(aws, "FILL_S", 0)
    chance, queue = random.Random(7), Queue("killed")
    feed, state = list[dict[str, Any]](), dict[str, Any]()
    for number in range(0, 120, 4):
        queue.send(*numbered(*range(number, number + 4)))
        reader = queue.reader(client=Failing(queue.client))
        reader.open("p.app", state, known)
        batches = reader.read()
        for _ in range(chance.randrange(1, 4)):
            batch = next(batches)
            if chance.random() < 0.3:
                break  # before it is in the feed
            feed += batch.operations
            state = dict(batch.state) or state
    feed += drained(queue, state)
    # In any order: moto returns messages that become visible again after new ones.
    assert sorted(int(each["id"]) for each in feed) == list(range(120))


def test_what_a_queue_needs() -> None:
    """An address, which shows whether it keeps order."""
    with pytest.raises(WrongPipeline, match="url must be that of a queue"):
        SqsQueue("in")
    assert str(Queue("in").reader()) == "sqs in (standard: in any order)"
