"""The job of the cloud with folders of this machine in place of S3, on the tables of a twin. What
does not depend on the engine runs on Sail; test_stage.py runs the whole job on Spark.
"""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.compat.oplog.feed import Feed, op
from tests.twin import Twin
from tests.unit.sync import exported
from tests.unit.sync.engines import on_spark
from tests.unit.sync.feeds import at
from tests.unit.sync.lines import line, written
from tidings.core.sync.corrections import Correction, read
from tidings.sync import feed as sync_feed
from tidings.sync import spark_session
from tidings.sync import stage as emr
from tidings.sync.state import Exported

TABLES = [f"--{name}-table=tidings-local-{name}" for name in ("log", "state", "control")]


@dataclass(frozen=True)
class Compared:
    """The result of one run of the job."""

    code: int
    plan: Path

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.plan / "summary.json").read_text())
        return found

    @property
    def corrections(self) -> list[Correction]:
        """Return the corrections in the order of the summary's list of parts."""
        parts = [self.plan / each["name"] for each in self.summary["parts"]]
        assert [part.stat().st_size for part in parts] == [
            each["bytes"] for each in self.summary["parts"]
        ]
        found: list[Correction] = []
        for part in parts:
            with gzip.open(part) as lines:
                found += read(lines)
        return found


@dataclass(frozen=True)
class Cloud:
    """The job for a feed of the twin."""

    twin: Twin
    feed: str
    folder: Path

    def post(self, **seconds: float) -> None:
        feed = Feed(self.twin.port, self.feed)
        feed.post(*(op(name, timestamp=at(second)) for name, second in seconds.items()))

    def run(self, dump: str, *options: str, state: str = "scan") -> Compared:
        plan = self.folder / "plans" / "one"
        words = ["--feed", self.feed, "--dump", dump, "--state", state, *TABLES]
        words += ["--plan", f"file://{plan}/", "--endpoint-url", self.twin.dynamodb_url]
        return Compared(emr.main([*words, *options]), plan)


@pytest.fixture
def job(
    twin: Twin, feed: str, tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Cloud:
    monkeypatch.setattr(spark_session, "cluster", lambda: nullcontext(session))
    return Cloud(twin, feed, tmp_path)


def test_the_plan_and_what_is_said_of_it(job: Cloud) -> None:
    """The plan has parts with their sizes in the order of applying, and the counts; no other file
    remains.
    """
    job.post(a=1, b=2, gone=1, **{f"x{number}": 3 for number in range(20)})
    dump = job.folder / "a dump"
    (dump / "part=1").mkdir(parents=True)
    for marker in ("_SUCCESS", ".hidden", "empty.json"):
        (dump / marker).write_text("" if marker != ".hidden" else "no JSON")
    written(dump / "1.json", [line("a", 5), line("b", 2), line("new", 9)])
    lines = b"\n".join(line(f"x{number}", 3) for number in range(20))
    (dump / "part=1" / "2.json.gz").write_bytes(gzip.compress(lines))

    done = job.run(str(dump))

    assert done.code == 0
    assert [each.key for each in done.corrections] == ["video/new", "video/a", "video/gone"]
    events = dict.fromkeys(each["event"] for each in done.summary["parts"])
    assert list(events) == ["insert", "update", "delete"]
    told = {name: done.summary[name] for name in ("feed", "dump", "through", "lines", "objects")}
    assert told == {"feed": job.feed, "dump": str(dump), "through": 1, "lines": 23, "objects": 23}
    assert (done.summary["stopped"], done.summary["allowable"]) == (None, False)
    assert done.summary["by_type"] == {"video": {"creates": 1, "updates": 1, "deletes": 1}}
    assert {each.name for each in done.plan.iterdir()} == {
        "1-insert",
        "2-update",
        "3-delete",
        "summary.json",
    }


def test_a_guard_is_no_failure(job: Cloud) -> None:
    """Too many deletes may be intended, so the plan is written; a truncated dump has no plan."""
    job.post(a=1, b=1, c=1)
    dump = written(job.folder / "dump", [line("a", 2)])

    many = job.run(dump)
    assert (many.code, many.summary["stopped_by"]) == (0, "too_many_deletes")
    assert many.summary["stopped"].startswith("2 of 3 objects (67%) would be deleted")
    assert many.summary["allowable"]
    assert sorted(each.key for each in many.corrections) == ["video/a", "video/b", "video/c"]

    short = job.run(dump, "--expect", "2")
    assert (short.code, short.summary["stopped_by"]) == (0, "truncated_dump")
    assert (short.summary["allowable"], short.summary["parts"]) == (False, [])
    assert [each.name for each in short.plan.iterdir()] == ["summary.json"]

    allowed = job.run(dump, "--max-delete-share", "1", "--types", "Video")
    assert (allowed.summary["stopped"], len(allowed.corrections)) == (None, 3)


def test_a_failure_says_why(job: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is the last line of the output, and is stored at the plan, without a summary."""
    dump = written(job.folder / "dump", [line("a", 1), b"", b"bad"])
    bad, said = job.run(dump), capsys.readouterr().err.splitlines()[-1]
    assert (bad.code, (bad.plan / "summary.json").exists()) == (1, False)
    assert said.startswith(f"failed: the dump has 1 bad line; the first is {dump}:3: must be JSON")
    assert said == f"failed: {json.loads((bad.plan / 'failure.json').read_text())['failed']}"

    assert job.run(dump, "--skip-bad", "1").summary["bad_lines"] == 1
    assert not (bad.plan / "failure.json").exists()

    plain = written(job.folder / "plain.gz", [line("a", 1)])
    assert job.run(plain).code == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"failed: {plain}: a file that ends in .gz must be gzip: not a gzip file"

    absent, said = job.run("/no/dump"), capsys.readouterr().err.splitlines()[-1]
    assert (absent.code, said) == (1, "failed: /no/dump: no such file")
    assert not (bad.plan / "summary.json").exists()
    with pytest.raises(SystemExit) as caught:
        job.run(dump, state="file:///an/export/")
    assert caught.value.code == 2


@on_spark
def test_an_export_gives_what_a_scan_gives(job: Cloud, session: SparkSession) -> None:
    """Both give the same rows of this feed and the same plan, whatever else is in the table."""
    Feed(job.twin.port, job.feed).post(
        op("ü/%€😀", timestamp=at(1), parents=["user/ä"], data={"a": '"\\\n\u2028'}),
        op("gone", "delete", timestamp=at(1)),
        *(op(f"x{number}", timestamp=at(number % 60)) for number in range(300)),
    )
    dump = written(job.folder / "dump", [line(f"x{n}", 30) for n in range(150)] + [line("gone", 9)])
    scanned = job.run(dump, "--max-delete-share", "1")
    found = scanned.corrections
    assert len(found) > 150
    everything = exported.items(job.twin)
    export = exported.written(job.folder, [everything[:99], [], everything[99:]])

    rows = Exported(job.feed, export).table(session)
    expected = sync_feed.on_endpoint(job.feed, job.twin.dynamodb_url).source().table(session)
    assert rows.schema == expected.schema
    assert sorted(rows.collect()) == sorted(expected.collect())
    through = str(scanned.summary["through"])
    again = job.run(dump, "--max-delete-share", "1", "--through", through, state=export)
    by_key = [sorted(each, key=str) for each in (found, again.corrections)]
    assert by_key[0] == by_key[1]
    assert again.summary | {"parts": []} == scanned.summary | {"parts": []}


def test_an_export_of_another_maker(spark: SparkSession, tmp_path: Path) -> None:
    """The data file as moto's DynamoDB exports it, of two feeds."""
    items = [
        {
            "bucket": {"S": f"{feed}#{number % 64:02x}"},
            "key": {"S": f"video/x{number}"},
            "page": {"N": str(number * 10**8)},
            "slot": {"N": str(number)},
            "at": {"N": "1"},
            "line": {"S": f'{{"event":"insert","timestamp":"{at(1)}","id":"x{number}"}}'},
        }
        for number in range(1, 9)
        for feed in ("main", "main.2")
    ]
    export = exported.manifested(tmp_path, [(16, exported.by_moto(items))])
    found = sorted(Exported("main", export).table(spark).collect())
    assert [each["key"] for each in found] == [f"video/x{number}" for number in range(1, 9)]
    assert found[0]["at"] == f"{10**8:010x}000001"
    assert (found[0]["moment"], found[0]["deleted"]) == ("2026-01-01T00:00:01.000", False)


@on_spark
def test_an_export_that_is_not_whole(job: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with too few items, with a truncated file or line, and without any file."""
    items = [
        {
            "bucket": {"S": f"{job.feed}#00"},
            "key": {"S": f"video/x{number}"},
            "page": {"N": "1"},
            "slot": {"N": "0"},
            "line": {"S": f'{{"event":"insert","timestamp":"{at(1)}","id":"x"}}'},
        }
        for number in range(500)
    ]
    dump = written(job.folder / "dump", [line("a", 1)])
    lines = "".join(f"{json.dumps({'Item': each})}\n" for each in items).encode()
    broken = [
        ("500 items, but manifest-files.json lists 501", (501, gzip.compress(lines))),
        ("Spark failed", (500, gzip.compress(lines)[:-40])),
        ("Spark failed", (500, gzip.compress(lines[:-20]))),
        ("names no file with items", (0, b"")),
    ]
    for number, (sentence, file) in enumerate(broken):
        export = exported.manifested(job.folder / str(number), [file])
        assert job.run(dump, "--through", "1", state=export).code == 1
        assert sentence in capsys.readouterr().err.splitlines()[-1]
