"""
Update the tables or compact the archive on EMR Serverless, on the schedule of a stage.

    python -m tidings.lake.emr --feeds main --archive s3://parts --table s3://lake/tables \\
        --glue tidings_prod --log-table L --state-table S --control-table C

The job brings the tables of each feed to the end of the feed, one feed after the other. It repeats
this until the minutes of `--minutes` are over. With `--compact yes`, the job instead compacts the
archive of each feed, up to the page that all named consumers, the followers and the table `history`
have reached. The exit code is 1 if a feed failed or was stopped; the last lines then name the feed
and the reason. Otherwise the exit code is 0. The next run continues where this run ended.

The job needs permission to read the log, the state and the positions of readers; to list, read,
write and delete parts and the files of the tables; and to read and write the tables of the database
in Glue.
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

from tidings.core.errors import InvalidFeed, TidingsError
from tidings.http.settings import WrongArchive
from tidings.lake import columns
from tidings.lake.columns import Schemas
from tidings.lake.compaction import Archive, CompactionOptions, Job, Opens, opener
from tidings.lake.feed_tables import FeedTables
from tidings.lake.follow import Batch, Follower, Source
from tidings.lake.status import bound_in_tables
from tidings.lake.warehouse import (
    BadColumns,
    BadTable,
    LakeError,
    Raced,
    Warehouse,
    in_folder,
    in_glue,
)
from tidings.spark.options import SparkError
from tidings.sync import feed as feeds
from tidings.sync import spark_session

PAUSE_S = 20  # the pause between two checks of the feeds; a check costs 1 or 2 read units per feed


@dataclass(frozen=True, slots=True)
class Request:
    """The work for one feed: to update its tables, or to compact its archive."""

    place: feeds.Place
    source: Source
    opens: Opens
    warehouse: Warehouse
    schemas: Schemas

    def follow(self, spark: SparkSession) -> None:
        """
        Bring the tables to the end of the feed.

        Raises:
            LakeError, SparkError: see `Follower`.
        """
        session, feed = self.warehouse.session(spark), self.place.feed
        tables = FeedTables(session, self.warehouse, feed, self.schemas, _ignore)

        def print_batch(batch: Batch) -> None:
            _say(json.dumps({"feed": feed, **asdict(batch)}))

        Follower(tables, self.source, 0, gaps=False, on_batch=print_batch).run(once=True)

    def compact(self, spark: SparkSession) -> None:
        """
        Compact the archive of the feed.

        Raises:
            LakeError, TidingsError: see `Job`.
        """
        options = CompactionOptions(page=bound_in_tables(self.place))
        archive = Archive(self.place.feed, self.opens)
        report = Job(spark, archive, self.warehouse, options, _say).run()
        _say(json.dumps(asdict(report)))


def main(arguments: Sequence[str] | None = None) -> int:
    named, requests = parse(arguments)
    until = time.monotonic() + 60 * named.minutes
    with spark_session.cluster() as spark:
        while True:
            failures = [
                failure
                for each in requests
                if (failure := _failure(each, spark, compacts=named.compact == "yes"))
            ]
            if failures or time.monotonic() >= until:
                break
            time.sleep(PAUSE_S)
    for failure in failures:
        _say(f"failed: {failure}")
    return 1 if failures else 0


def _failure(request: Request, spark: SparkSession, *, compacts: bool) -> str | None:
    feed = request.place.feed
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


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[Request]]:
    """Parse the arguments. If they are invalid, print a message and exit with 2."""
    parser = argparse.ArgumentParser(prog="tidings.lake.emr")
    for name in ("feeds", "archive", "table"):
        parser.add_argument(f"--{name}", required=True)
    feeds.add_tables(parser)
    parser.add_argument("--glue", help="database in Glue; without it, --table is a folder")
    parser.add_argument("--columns", default="{}", help="types with tables, as JSON")
    parser.add_argument("--minutes", type=int, default=0, help="duration of the run")
    parser.add_argument("--compact", choices=("yes", "no"), default="no")
    named = parser.parse_args(arguments)
    try:
        return named, _requests(named)
    except (BadColumns, BadTable, InvalidFeed, WrongArchive) as error:
        parser.error(str(error))


def _requests(named: argparse.Namespace) -> list[Request]:
    warehouse = in_glue(named.table, named.glue) if named.glue else in_folder(named.table)
    opens, schemas = opener(named.archive), columns.parse(named.columns)
    return [
        Request(feeds.named_tables(feed, named), _source(feed, named), opens, warehouse, schemas)
        for feed in named.feeds.split(",")
    ]


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


def _ignore(phase: str) -> None:
    """Ignore the name of a phase, because the job reports each batch when it is written."""


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
