"""
What a row of the state costs to write, by each way DynamoDB offers, and how fast the log reads.

Needs a DynamoDB that costs nothing, by AWS_ENDPOINT_URL (`tidings local` or DynamoDB Local);
run `python -m bench.state_writes`. Everything runs on one machine, so the figures compare ways
of asking, not DynamoDB itself: the service answers a write in some 5 ms, the engine in 1 ms.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config
from mypy_boto3_dynamodb import DynamoDBClient
from tidings.aws.dynamodb.items import page as pages
from tidings.aws.dynamodb.items import row as rows
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.state import DynamoDBState
from tidings.aws.dynamodb.transport import raw_query
from tidings.aws.dynamodb.transport.puts import Condition, Put, Puts
from tidings.aws.dynamodb.transport.table import expressions
from tidings.aws.runtime.clock import sleep_ms
from tidings.core.model.pages import Page, encode
from tidings.core.state.rows import Row

_ROWS = 4000
_AT = 1_763_000_000_123
_TABLE = "bench-state"
_LOG = "bench-log"


def main() -> int:
    client = _client()
    if "127.0.0.1" not in client.meta.endpoint_url:
        _tell("set AWS_ENDPOINT_URL to a DynamoDB on this machine")
        return 2
    for table, partition, sort, kind in (
        (_TABLE, "bucket", "key", "S"),
        (_LOG, "feed", "page", "N"),
    ):
        _create(client, table, partition, sort, kind)
    _ways_of_writing(client)
    _adapter(client)
    _reading()
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _client(*, raw: bool = True, validated: bool = False) -> DynamoDBClient:
    config = Config(max_pool_connections=32, parameter_validation=validated, tcp_keepalive=True)
    client = boto3.client("dynamodb", config=config)
    if raw:
        raw_query.read_items_raw(client)
    return client


def _create(client: DynamoDBClient, table: str, partition: str, sort: str, kind: Any) -> None:
    if table in client.list_tables()["TableNames"]:
        client.delete_table(TableName=table)
    client.create_table(
        TableName=table,
        KeySchema=[
            {"AttributeName": partition, "KeyType": "HASH"},
            {"AttributeName": sort, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": partition, "AttributeType": "S"},
            {"AttributeName": sort, "AttributeType": kind},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def _line(number: int) -> str:
    digits = hashlib.sha256(str(number).encode()).hexdigest()
    return (
        '{"event":"update","timestamp":"2026-11-20T17:19:10.94Z",'
        f'"parents":["user/x{digits[:6]}","channel/music"],"type":"video","id":"x{digits[-7:]}"}}'
    )


def _row(number: int) -> Row:
    return Row(f"video/{number}", 1, 0, _AT, _line(number))


class _Units:
    """Write units used, counted from the answers."""

    def __init__(self, client: DynamoDBClient) -> None:
        self.total = 0.0
        client.meta.events.register("before-parameter-build.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._add)

    def _ask(self, params: dict[str, Any], **_: object) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def _add(self, parsed: dict[str, Any], **_: object) -> None:
        told = parsed.get("ConsumedCapacity", [])
        for each in told if isinstance(told, list) else [told]:
            self.total += each.get("CapacityUnits", 0)


def _ways_of_writing(client: DynamoDBClient) -> None:
    def put(chunk: range) -> None:
        for number in chunk:
            client.put_item(TableName=_TABLE, Item=_item(number), **_newer(number))

    def batch(chunk: range) -> None:
        puts: Any = [{"PutRequest": {"Item": _item(number)}} for number in chunk]
        assert not client.batch_write_item(RequestItems={_TABLE: puts})["UnprocessedItems"]

    def transact(chunk: range) -> None:
        puts: Any = [
            {"Put": {"TableName": _TABLE, "Item": _item(number), **_newer(number)}}
            for number in chunk
        ]
        client.transact_write_items(TransactItems=puts)

    def statements(chunk: range) -> None:
        answer = client.batch_execute_statement(Statements=[_statement(number) for number in chunk])
        assert all("Error" not in each for each in answer["Responses"]), answer["Responses"][0]

    # The engine tells no units of the last two; theirs are AWS's price list: 1 and 2 per KB.
    ways: list[tuple[str, Callable[[range], None], int, tuple[int, ...], str]] = [
        ("(warming up)", batch, 25, (4,), ""),
        ("BatchWriteItem of 25, no condition", batch, 25, (1, 4, 8), ""),
        ("PutItem with a condition", put, 25, (1, 8), ""),
        ("PutItem with a condition, past boto3", _past_boto3(client), _ROWS, (1,), "1 (listed)"),
        ("BatchExecuteStatement of 25 with conditions", statements, 25, (1, 4, 8), "1 (listed)"),
        ("TransactWriteItems of 100 with conditions", transact, 100, (1, 4, 8), "2 (listed)"),
    ]
    units = _Units(client)
    for name, way, step, threads, listed in ways:
        for count in threads:
            units.total = 0
            rate, cpu_us = _rate(way, step, count)
            _tell(
                f"{name:45} {count} threads {rate:6.0f} rows/s"
                f" {cpu_us:5.0f} us of our CPU a row,"
                f" {listed or units.total / _ROWS} write units a row"
            )


def _item(number: int) -> dict[str, Any]:
    return rows.encode("main", _row(number))


_NEWER = "attribute_not_exists(#page) OR #page <= :page"


def _newer(number: int) -> dict[str, Any]:
    """Only over an older position, as it would be without a lease."""
    return expressions({":page": {"N": "1"}}, ConditionExpression=_NEWER)


def _past_boto3(client: DynamoDBClient) -> Callable[[range], None]:
    puts = Puts(client, _TABLE, sleep_ms)
    newer = Condition(_NEWER, {":page": {"N": "1"}})

    def put(chunk: range) -> None:
        assert all(puts([Put(_item(number), newer) for number in chunk]))

    return put


def _statement(number: int) -> Any:
    item = _item(number)
    return {
        "Statement": (
            f'UPDATE "{_TABLE}" SET page=? SET slot=? SET "at"=? SET line=?'
            ' WHERE bucket=? AND "key"=? AND page <= ?'
        ),
        "Parameters": [item[name] for name in ("page", "slot", "at", "line", "bucket", "key")]
        + [item["page"]],
    }


def _rate(way: Callable[[range], None], step: int, threads: int) -> tuple[float, float]:
    """Rows a second, and microseconds of CPU of this process a row."""
    chunks = [range(at, at + step) for at in range(0, _ROWS, step)]
    started, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        _drain(pool.map(way, chunks))
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    return _ROWS / wall, cpu / _ROWS * 1e6


def _drain(results: Iterable[object]) -> None:
    for _ in results:
        pass


def _adapter(client: DynamoDBClient) -> None:
    state = DynamoDBState(client, _TABLE)
    written = [_row(number) for number in range(_ROWS)]
    for what in ("new rows", "rows that stand"):
        started, cpu = time.perf_counter(), time.process_time()
        state.write("main", written)
        taken, cpu = time.perf_counter() - started, time.process_time() - cpu
        _tell(
            f"{'StateStore.write, ' + what:45}           {_ROWS / taken:6.0f} rows/s"
            f" {cpu / _ROWS * 1e6:5.0f} us of our CPU a row"
        )
    started = time.perf_counter()
    count = sum(len(state.read("main", bucket)) for bucket in range(64))
    taken = time.perf_counter() - started
    _tell(f"{'StateStore.read, 64 buckets':45}           {count / taken:6.0f} rows/s")


def _reading() -> None:
    small, packed = 16_000, 1_500
    writer = _client()
    _write_pages(writer, "small", [encode([_line(number)]) for number in range(small)])
    lines = [[_line(number * 100 + slot) for slot in range(100)] for number in range(packed)]
    _write_pages(writer, "packed", [encode(each) for each in lines])
    for name, client in (
        ("botocore's parser, parameters validated", _client(raw=False, validated=True)),
        ("botocore's parser", _client(raw=False)),
        ("items taken raw (the adapter)", _client()),
    ):
        for feed, operations in (("small", 1), ("packed", 100)):
            best = min((_read(client, feed) for _ in range(3)), key=lambda each: each[1])
            count, wall, cpu = best
            _tell(
                f"read {feed:7}{name:42}{count / wall:6.0f} pages/s"
                f" {count * operations / wall:8.0f} operations/s"
                f" {cpu / count * 1e6:6.1f} us of our CPU a page"
            )


def _write_pages(client: DynamoDBClient, feed: str, bodies: list[str | bytes]) -> None:
    puts: list[Any] = [
        {"PutRequest": {"Item": pages.encode(feed, Page(number, body, "a" * 32, _AT, _AT))}}
        for number, body in enumerate(bodies, 1)
    ]
    batches = [puts[at : at + 25] for at in range(0, len(puts), 25)]
    with ThreadPoolExecutor(4) as pool:
        _drain(pool.map(lambda batch: client.batch_write_item(RequestItems={_LOG: batch}), batches))


def _read(client: DynamoDBClient, feed: str) -> tuple[int, float, float]:
    """Pages, seconds, and seconds of CPU of this process."""
    log = DynamoDBLog(client, _LOG, "unused")
    count = after = 0
    started, cpu = time.perf_counter(), time.process_time()
    while found := log.read(feed, after):
        count += len(found)
        after = found[-1].number
    return count, time.perf_counter() - started, time.process_time() - cpu


if __name__ == "__main__":
    sys.exit(main())
