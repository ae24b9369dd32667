"""
Run the comparison on EMR Serverless: from a dump on S3 and the state to a plan on S3.

    python -m tidings.sync.emr --feed main --dump s3://bucket/dumps/main/ --state scan \\
        --log-table L --state-table S --control-table C --plan s3://bucket/plans/ID/

With `--state s3://bucket/.../AWSDynamoDB/<export-id>/ --through N` the state is read from an export
of its table. N is the checkpoint of the follower `state`, read with strong consistency before the
time of the export (`exported_state`).

The output goes to the folder --plan: the parts (`plan`) and, last, `summary.json` with the counts
of `plan.Summary`,

    feed, dump        as given
    stopped           null, or the message of the guard that objects
    stopped_by        null, or its code: empty_dump, truncated_dump, too_many_deletes
    allowable         true if the plan was written nevertheless and may be applied after approval
    parts             [{"name": "1-insert/part-...", "event": "insert", "bytes": 123}, ...]: names
                      below --plan, in the order in which they must be applied: all of an event
                      before those of the next

The exit code is 0, even if a guard objects; 1 after a failure, with the reason in the last line and
in `failure.json`, which replaces the summary; 2 for wrong usage. A run may be repeated: it starts
from the beginning. The feed is not changed.

It needs permission to list and read the dump and the export, to list, read, write and delete below
--plan, and to `Query` the three tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge
from pyspark.sql import SparkSession

from tidings.core.errors import InvalidFeed, TidingsError
from tidings.core.model.operations import EVENTS
from tidings.core.sync.dumps import DELETE_SHARE_MAX, Objection
from tidings.sync import apply, files, inputs, target
from tidings.sync.bad_input import BadFile
from tidings.sync.engines import spark_session
from tidings.sync.exported_state import BadExport, Exported
from tidings.sync.job import BadDump, Job, Wishes, types_named
from tidings.sync.plan import SUMMARY, Stopped, Summary, subfolder

SCAN = "scan"  # read the table itself, by buckets
FAILURE = "failure.json"
_WORK = "work"  # temporary files between the steps; deleted at the end
_FAILURES = (inputs.NoDump, BadFile, BadExport, apply.NotFollowing, TidingsError)


@dataclass(frozen=True, slots=True)
class Request:
    """
    The arguments of a run. *state* is `scan` or an export's folder, *plan* this run's own folder.
    """

    place: target.Place
    dump: str
    state: str
    through: int
    plan: str
    wishes: Wishes
    as_of: str = ""

    def run(self, spark: SparkSession) -> None:
        """
        Write the plan and its summary.

        Raises:
            NoDump, BadDump, BadFile, BadExport: the dump or the export is missing or invalid.
            NotFollowing: the state does not follow the log.
            InvalidSync: *as_of* is not a position or time of the feed.
        """
        self._clear()
        paths = inputs.in_place(self.dump)
        objection = None
        try:
            summary = self._planned(spark, paths)
        except Stopped as stopped:
            summary, objection = stopped.summary, stopped.objection
        files.remove(self._below(_WORK))
        files.write(self._below(SUMMARY), self._summary_json(summary, objection))

    def _planned(self, spark: SparkSession, paths: list[str]) -> Summary:
        plan = self.plan.rstrip("/")
        wishes = self.wishes
        if self.as_of:
            wishes = replace(wishes, as_of=self.place.watermark(self.as_of))
        job = Job(spark, self._below(_WORK), wishes, _say, plan, for_approval=True)
        if self.state == SCAN:
            through = apply.through(self.place)
            return job.make_plan(paths, self.place.source(), through=through)
        return job.make_plan(paths, Exported(self.place.feed, self.state), through=self.through)

    def _clear(self) -> None:
        """Delete the output of an earlier run, which may have other parts."""
        for name in (*map(subfolder, EVENTS), _WORK, SUMMARY, FAILURE):
            files.remove(self._below(name))

    def tell_failure(self, sentence: str) -> None:
        with suppress(BotoCoreError, ClientError, OSError):  # the exit code reports it, too
            files.write(self._below(FAILURE), json.dumps({"failed": sentence}))

    def _summary_json(self, summary: Summary, objection: Objection | None) -> str:
        fields = asdict(summary) | {
            "feed": self.place.feed,
            "dump": self.dump,
            "stopped": objection and objection.sentence,
            "stopped_by": objection and objection.code,
            "allowable": objection is not None and objection.allowable,
            "parts": [part for event in summary.events for part in self._parts(event)],
        }
        return json.dumps(fields)

    def _parts(self, event: str) -> list[dict[str, object]]:
        folder = subfolder(event)
        return [
            {
                "name": f"{folder}/{file.address.rpartition('/')[2]}",
                "event": event,
                "bytes": file.size,
            }
            for file in files.named(self._below(folder))
        ]

    def _below(self, name: str) -> str:
        return f"{self.plan.rstrip('/')}/{name}"


def main(arguments: Sequence[str] | None = None) -> int:
    request = parse(arguments)
    try:
        with spark_session.cluster() as spark:
            request.run(spark)
    except BadDump as bad:
        for each in bad.first:
            _say(str(each))
        return _failed(request, f"the dump has {bad}; the first is {bad.first[0]}")
    except (*_FAILURES, BotoCoreError, ClientError) as error:
        return _failed(request, str(error))
    except spark_session.SPARK_ERRORS as error:
        _say(str(error))
        return _failed(request, spark_session.sentence_of(error))
    return 0


def parse(arguments: Sequence[str] | None) -> Request:
    """Parse the arguments; on wrong usage print a message and exit with 2."""
    parser = argparse.ArgumentParser(prog="tidings.sync.emr")
    for name in ("feed", "dump", "state", "plan"):
        parser.add_argument(f"--{name}", required=True)
    target.add_tables(parser)
    parser.add_argument("--through", type=int)
    parser.add_argument("--types", default="")
    parser.add_argument("--no-deletes", action="store_true")
    parser.add_argument("--skip-bad", type=int, default=0)
    parser.add_argument("--expect", type=int)
    parser.add_argument("--max-delete-share", type=float, default=DELETE_SHARE_MAX)
    parser.add_argument("--as-of", default="", help="when the dump began: a place or a time")
    named = parser.parse_args(arguments)
    if named.state != SCAN and named.through is None:
        parser.error("--state with an export needs --through")
    try:
        return _request(named)
    except InvalidFeed as error:
        parser.error(str(error))


def _request(named: argparse.Namespace) -> Request:
    where = target.named_tables(named.feed, named)
    wishes = Wishes(
        types_named(named.types),
        not named.no_deletes,
        named.skip_bad,
        named.expect,
        named.max_delete_share,
    )
    through = named.through or 0
    return Request(where, named.dump, named.state, through, named.plan, wishes, named.as_of)


def _failed(request: Request, sentence: str) -> int:
    request.tell_failure(sentence)
    _say(f"failed: {sentence}")
    return 1


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
