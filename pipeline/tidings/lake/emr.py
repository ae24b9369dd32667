"""
Tables and compaction as EMR Serverless runs them, by the clock of a stage.

    python -m tidings.lake.emr --feeds main --archive s3://parts --table s3://lake/tables \\
        --glue tidings_prod --log-table L --state-table S --control-table C

The feeds are done one after the other, each bounded by its named consumers and followers. The exit
code is 0, or 1 where one of them failed or was stopped: the last lines say which, and why. A run
may be repeated; it goes on where the one before was.

It may list, read, write and delete parts and the files of the tables, read and write the tables of
the database in Glue, and `Query` the control table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge
from pyspark.sql import SparkSession
from tidings.core.errors import InvalidFeed, TidingsError
from tidings.lake import consumer_bounds
from tidings.lake.errors import BadTable, LakeError
from tidings.lake.job import Job, Wishes
from tidings.lake.parts import Archive, Opens, opener
from tidings.lake.warehouse import Warehouse, in_folder, in_glue
from tidings.sync import spark_session, target
from tidings.web.archive_url import WrongArchive


@dataclass(frozen=True, slots=True)
class Request:
    """One feed each."""

    place: target.Place
    opens: Opens
    warehouse: Warehouse

    def run(self, spark: SparkSession) -> None:
        """
        Raises:
            LakeError, TidingsError: see `Job`.
        """
        feed = self.place.feed
        wishes = Wishes(page=consumer_bounds.in_tables(self.place))
        report = Job(spark, Archive(feed, self.opens), self.warehouse, wishes, _say).run()
        _say(json.dumps(asdict(report)))


def main(arguments: Sequence[str] | None = None) -> int:
    requests = parse(arguments)
    with spark_session.cluster() as spark:
        failures = [failure for each in requests if (failure := _failure(each, spark))]
    for failure in failures:
        _say(f"failed: {failure}")
    return 1 if failures else 0


def _failure(request: Request, spark: SparkSession) -> str | None:
    feed = request.place.feed
    try:
        request.run(spark)
    except (LakeError, TidingsError, BotoCoreError, ClientError) as error:
        return f"{feed}: {error}"
    except spark_session.SPARK_ERRORS as error:
        _say(str(error))
        return f"{feed}: {spark_session.sentence_of(error)}"
    return None


def parse(arguments: Sequence[str] | None) -> list[Request]:
    """Of wrong usage it says so and exits with 2."""
    parser = argparse.ArgumentParser(prog="tidings.lake.emr")
    for name in ("feeds", "archive", "table"):
        parser.add_argument(f"--{name}", required=True)
    target.add_tables(parser)
    parser.add_argument("--glue", help="the database; without it --table is a folder")
    named = parser.parse_args(arguments)
    try:
        return _requests(named)
    except (BadTable, InvalidFeed, WrongArchive) as error:
        parser.error(str(error))


def _requests(named: argparse.Namespace) -> list[Request]:
    warehouse = in_glue(named.table, named.glue) if named.glue else in_folder(named.table)
    opens = opener(named.archive)
    places = [target.named_tables(feed, named) for feed in named.feeds.split(",")]
    return [Request(each, opens, warehouse) for each in places]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
