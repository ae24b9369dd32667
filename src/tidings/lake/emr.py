"""Update the tables or compact the archive on EMR Serverless, on the schedule of a stage.

    python -m tidings.lake.emr --feeds main --archive s3://parts --table s3://lake/tables \\
        --glue tidings_prod --log-table L --state-table S --control-table C

The job brings the tables of each feed to the end of the feed, one feed after the other. It repeats
this until the minutes of `--minutes` are over. The feeds are those of `--feeds`, and those that
were created while the stage runs. If a feed was deleted together with its tables, the job drops the
tables when the other data of the feed is removed, and stores this in the record of the feed.

With `--compact yes`, the job instead compacts the archive of each feed, up to the page that all
named consumers, the followers and the table `history` have reached. The exit code is 1 if a feed
failed or was stopped; the last lines then name the feed and the reason. Otherwise the exit code is
0. The next run continues where this run ended.

The job needs permission to read the log, the state and the positions of readers; to write records
of feeds; to list, read, write and delete parts and the files of the tables; and to read, write and
drop the tables of the database in Glue.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 caught at the edge
from pyspark.sql import SparkSession

from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.effects import now_ms
from tidings.core.errors import InvalidFeed, TidingsError
from tidings.core.feeds.directory import Directory
from tidings.core.feeds.records import FeedStore
from tidings.core.feeds.remover import note_dropped_tables
from tidings.core.model.feeds import DEFAULT_FEED, check_name, key_of, public_name
from tidings.http.settings import WrongArchive
from tidings.lake import columns
from tidings.lake.columns import Schemas
from tidings.lake.compaction import Archive, CompactionOptions, Job, Opens, opener
from tidings.lake.feed_tables import FeedTables
from tidings.lake.follow import Batch, Follower, Source
from tidings.lake.status import bound_in_tables
from tidings.lake.warehouse import (
    CATALOG,
    BadColumns,
    BadTable,
    LakeError,
    Raced,
    Warehouse,
    in_folder,
    in_glue,
    kind_of,
    table_names,
)
from tidings.spark.options import SparkError
from tidings.sync import feed as sync_feed
from tidings.sync import spark_session

PAUSE_S = 20  # the pause between two checks of the feeds; a check costs 1 or 2 read units per feed


@dataclass(frozen=True, slots=True)
class TableWork:
    """The work for one feed: to update its tables, or to compact its archive."""

    dynamodb: sync_feed.DynamoDBFeed
    source: Source
    opens: Opens
    warehouse: Warehouse
    schemas: Schemas

    def follow(self, spark: SparkSession) -> None:
        """Bring the tables to the end of the feed.

        Raises:
            LakeError, SparkError: see `Follower`.
        """
        session, feed = self.warehouse.session(spark), self.dynamodb.feed
        tables = FeedTables(session, self.warehouse, feed, self.schemas, lambda phase: None)

        def print_batch(batch: Batch) -> None:
            _say(json.dumps({"feed": public_name(feed), **asdict(batch)}))

        Follower(tables, self.source, 0, gaps=False, on_batch=print_batch).run(once=True)

    def compact(self, spark: SparkSession) -> None:
        """Compact the archive of the feed.

        Raises:
            LakeError, TidingsError: see `Job`.
        """
        options = CompactionOptions(page=bound_in_tables(self.dynamodb))
        archive = Archive(self.dynamodb.feed, self.opens)
        report = Job(spark, archive, self.warehouse, options, _say).run()
        _say(json.dumps(asdict(report)))


@dataclass(frozen=True, slots=True)
class Lake:
    """The feeds and the tables that the arguments *named* name."""

    named: argparse.Namespace
    opens: Opens
    warehouse: Warehouse
    schemas: Schemas

    def requests(self) -> list[TableWork]:
        """Return the work for each feed that exists now.

        Raises:
            Unavailable, BotoCoreError, ClientError: DynamoDB does not answer.
        """
        return [
            TableWork(
                sync_feed.named_tables(key, self.named),
                _source(public_name(key), self.named),
                self.opens,
                self.warehouse,
                self.schemas,
            )
            for key in self._directory().all_keys()
        ]

    def exists(self, key: str) -> bool:
        return self._directory().exists(key)

    def drop_tables(self, spark: SparkSession) -> None:
        """Drop the tables of deleted feeds. Their other data is removed, so no run writes them.

        Raises:
            Unavailable, BotoCoreError, ClientError: DynamoDB does not answer.
        """
        store = self._store()
        for record in store.unfinished():
            for removal in record.unfinished:
                if removal.done_ms:
                    self._drop(spark, key_of(record.name, removal.number))
                    note_dropped_tables(store, record.name, removal.number)

    def _drop(self, spark: SparkSession, key: str) -> None:
        session = self.warehouse.session(spark)
        for name in table_names(self.warehouse):
            if kind_of(key, name) is not None:
                table = f"{CATALOG}.{self.warehouse.database}.{name}"
                session.sql(f"DROP TABLE IF EXISTS {table} PURGE")
                _say(json.dumps({"feed": public_name(key), "dropped": name}))

    def _directory(self) -> Directory:
        return Directory(self._store(), self.named.feeds.split(","), now_ms)

    def _store(self) -> FeedStore:
        dynamodb = sync_feed.named_tables(DEFAULT_FEED, self.named)
        return FeedStore(DynamoDBRecords(dynamodb.client(), dynamodb.settings.control_table))


def main(arguments: Sequence[str] | None = None) -> int:
    lake = parse(arguments)
    until = time.monotonic() + 60 * lake.named.minutes
    with spark_session.cluster() as spark:
        while True:
            failures = _run(lake, spark)
            if failures or time.monotonic() >= until:
                break
            time.sleep(PAUSE_S)
    for failure in failures:
        _say(f"failed: {failure}")
    return 1 if failures else 0


def _run(lake: Lake, spark: SparkSession) -> list[str]:
    """Do the work of all feeds once; return the failures."""
    compacts = lake.named.compact == "yes"
    try:
        failures = [
            failure
            for each in lake.requests()
            if (failure := _failure(each, spark, compacts=compacts))
            and lake.exists(each.dynamodb.feed)  # it may have been deleted in the meantime
        ]
        if not compacts:
            lake.drop_tables(spark)
    except (TidingsError, BotoCoreError, ClientError) as error:
        return [str(error)]
    return failures


def _failure(request: TableWork, spark: SparkSession, *, compacts: bool) -> str | None:
    feed = public_name(request.dynamodb.feed)
    try:
        request.compact(spark) if compacts else request.follow(spark)
    except Raced as raced:
        _say(f"{feed}: left to another run: {raced}")
    except (LakeError, SparkError, TidingsError, BotoCoreError, ClientError) as error:
        return f"{feed}: {error}"
    except spark_session.SPARK_ERRORS as error:
        _say(str(error))
        return f"{feed}: {spark_session.sentence_of(error)}"
    return None


def parse(arguments: Sequence[str] | None) -> Lake:
    """Parse the arguments. If they are invalid, print a message and exit with 2."""
    parser = argparse.ArgumentParser(prog="tidings.lake.emr")
    for name in ("feeds", "archive", "table"):
        parser.add_argument(f"--{name}", required=True)
    sync_feed.add_tables(parser)
    parser.add_argument("--glue", help="database in Glue; without it, --table is a folder")
    parser.add_argument("--columns", default="{}", help="types with tables, as JSON")
    parser.add_argument("--minutes", type=int, default=0, help="duration of the run")
    parser.add_argument("--compact", choices=("yes", "no"), default="no")
    named = parser.parse_args(arguments)
    try:
        for feed in named.feeds.split(","):
            check_name(feed)
        warehouse = in_glue(named.table, named.glue) if named.glue else in_folder(named.table)
        return Lake(named, opener(named.archive), warehouse, columns.parse(named.columns))
    except (BadColumns, BadTable, InvalidFeed, WrongArchive) as error:
        parser.error(str(error))


def _source(feed: str, named: argparse.Namespace) -> Source:
    given = {
        "feed": feed,
        "logTable": named.log_table,
        "stateTable": named.state_table,
        "controlTable": named.control_table,
        "region": named.region,
        "endpoint": named.endpoint_url,
        "archive": named.archive,
    }
    return Source({name: value for name, value in given.items() if value})


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
