"""`tidings verify` and `tidings rebuild` of tables with a state that was broken by hand.

On a twin: a feed of DynamoDB is verified while producers post, a server's feed is not.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import until
from tests.contract.spill import SpillContract
from tests.twin import Twin
from tests.unit.client.command import TIDINGS
from tidings.admin.state_target import StateTarget, find
from tidings.admin.verify_command import FileSpill
from tidings.aws.dynamodb.state import encode_row
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.core.state.rows import Difference, Kind, Row


class TestFileSpill(SpillContract):
    @pytest.fixture
    def spill(self, tmp_path: Path) -> FileSpill:
        return FileSpill(tmp_path, range(8))


pytestmark = pytest.mark.java


@dataclass(frozen=True)
class Kept:
    """A feed of its own for a test, and what an operator and a meddler can do to its state."""

    twin: Twin
    name: str

    @property
    def feed(self) -> Feed:
        return Feed(self.twin.port, self.name)

    @cached_property
    def target(self) -> StateTarget:
        return find(self.name, None, self.twin.dynamodb_url)

    def run(self, command: str, options: str = "") -> Result:
        where = ["--feed", self.name, "--endpoint-url", self.twin.dynamodb_url]
        return CliRunner().invoke(main, [command, *where, *options.split()])

    def told(self, command: str, options: str = "") -> tuple[list[str], dict[str, Any], int]:
        """Return the differences as `kind key`, the sum, and the exit code."""
        done = self.run(command, f"{options} --json")
        *lines, last = map(json.loads, done.stdout.splitlines())
        return (
            sorted(f"{each['difference']} {each['key']}" for each in lines),
            last,
            done.exit_code,
        )

    def rows(self) -> dict[str, Row]:
        states = self.target.states()
        return {
            row.key: row
            for bucket in range(limits.BUCKETS)
            for row in states.read(self.name, bucket)
        }

    def filled(self) -> dict[str, Row]:
        """Objects a to i, of which b changed and c was deleted; their rows."""
        self.feed.post(*(op(name) for name in "abcdefghi"))
        self.feed.post(op("b", "update"), op("c", "delete"))
        until(lambda: [row.page for row in self.find("c")] == [2])
        return self.rows()

    def find(self, *names: str) -> list[Row]:
        return self.target.states().find(self.name, [f"video/{name}" for name in names])

    def write(self, row: Row) -> None:
        """Write the row by hand over any existing one."""
        table = self.target.settings.state_table
        self.target.client.put_item(TableName=table, Item=encode_row(self.name, row))

    def remove(self, row: Row) -> None:
        table = self.target.settings.state_table
        self.target.client.delete_item(TableName=table, Key=self._key(row))

    def lose(self, row: Row, *names: str) -> None:
        """Delete these attributes of an item, as by hand."""
        self.target.client.update_item(
            TableName=self.target.settings.state_table,
            Key=self._key(row),
            UpdateExpression=f"REMOVE {', '.join(f'#{name}' for name in names)}",
            ExpressionAttributeNames={f"#{name}": name for name in names},
        )

    def _key(self, row: Row) -> Any:
        return {"bucket": {"S": f"{self.name}#{row.bucket:02x}"}, "key": {"S": row.key}}


@pytest.fixture
def kept(twin: Twin, spare: Iterator[str]) -> Kept:
    return Kept(twin, next(spare))


def broken(kept: Kept, rows: dict[str, Row]) -> list[str]:
    """Break one row of each kind of difference; return the expected report."""
    kept.remove(rows["video/a"])
    kept.write(rows["video/b"]._replace(page=1, slot=1))
    kept.write(rows["video/d"]._replace(line=rows["video/d"].line.replace("[]", '["p"]')))
    kept.write(Row("video/z", 2, 7, 0, rows["video/d"].line))
    return ["alien video/z", "altered video/d", "missing video/a", "stale video/b"]


def test_what_was_broken_is_named_and_put_right(kept: Kept) -> None:
    """Each row, by its kind; then the state is what it was, and a second run has nothing to do."""
    rows = kept.filled()
    assert kept.told("verify")[2] == 0
    said = broken(kept, rows)
    meddled = kept.rows()

    told, last, code = kept.told("verify")
    assert (told, code) == (said, 3)
    assert last["agreeing"] == 6
    table = kept.run("verify")
    assert (table.exit_code, "altered: line" in table.stdout) == (3, True)
    assert (
        f"6 rows of {kept.name} agree with its log up to page 2; 1 missing, 1 stale" in table.stdout
    )
    dry = kept.run("rebuild", "--dry-run --max-alien-share 0.2")
    assert (dry.exit_code, "missing" in dry.stdout) == (0, True)
    assert kept.rows() == meddled
    done = kept.run("rebuild", "--max-alien-share 0.2")
    assert (done.exit_code, "Repaired 4; 0 changed in the meantime." in done.stdout) == (0, True)
    assert kept.rows() == rows
    assert kept.told("verify")[2] == 0
    assert kept.told("rebuild")[1]["repaired"] == 0


def test_a_row_that_lacks_attributes_is_named_and_put_right(kept: Kept) -> None:
    """This holds for each attribute, and for a row with only a key, which is not in the log."""
    rows = kept.filled()
    for name, lost in {"a": "page", "b": "slot", "d": "at", "e": "line"}.items():
        kept.lose(rows[f"video/{name}"], lost)
    kept.lose(Row("video/z", 1, 1, 1, "x"), "page", "slot", "at", "line")

    told, last, code = kept.told("verify")
    assert (told, code) == ([f"broken video/{name}" for name in "abdez"], 3)
    assert (last["agreeing"], last["differences"]["broken"]) == (5, 5)
    assert "broken: line" in kept.run("verify").stdout
    assert kept.told("rebuild")[1]["repaired"] == 5
    assert kept.rows() == rows


def test_a_feed_at_work_is_verified_and_rebuilt(kept: Kept) -> None:
    """Producers post in the meantime: there is no false alarm, and none of their changes is
    undone."""
    rows = kept.filled()
    ended = threading.Event()

    def produce() -> None:
        for number in count():
            if ended.wait(0.02):
                return
            kept.feed.post(*(op(f"n{(number + at) % 50}", "update") for at in range(20)))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        assert kept.told("verify")[0] == []
        kept.remove(rows["video/a"])
        assert kept.told("verify")[0] == ["missing video/a"]
        assert kept.told("rebuild")[1]["repaired"] == 1
    finally:
        ended.set()
        producer.join()
    assert kept.find("a") == [rows["video/a"]]
    assert kept.told("verify")[::2] == ([], 0)


def test_what_is_older_than_the_log_stays(kept: Kept) -> None:
    """It is counted, not judged, and never removed."""
    rows = kept.filled()
    log = kept.target.stores.log
    log.raise_floor(kept.name, 2)
    key = {"feed": {"S": kept.name}, "page": {"N": "1"}}
    kept.target.client.delete_item(TableName=kept.target.settings.log_table, Key=key)
    kept.write(rows["video/d"]._replace(line=rows["video/d"].line.replace("[]", '["p"]')))
    before = kept.rows()

    _, last, code = kept.told("verify")
    assert (code, last["older"], last["agreeing"]) == (0, 7, 2)
    assert "7 are older than the log, which begins with page 2" in kept.run("verify").stdout
    assert kept.told("rebuild")[2] == 0
    assert kept.rows() == before


def test_a_log_that_is_not_the_right_one_stops_a_rebuild(kept: Kept) -> None:
    """It stops before it changes rows if pages that the state has handled are missing, or too many
    rows are unknown.
    """
    rows = kept.filled()
    for name in "mn":
        kept.write(Row(f"video/{name}", 9, 0, 0, rows["video/d"].line))
    stopped = kept.run("rebuild")
    assert (stopped.exit_code, "does not have 2 of 11 rows (18%)" in stopped.stderr) == (3, True)
    assert len(kept.rows()) == 11
    assert kept.run("rebuild", "--max-alien-share 0.5").exit_code == 0
    assert kept.rows() == rows
    key = {"feed": {"S": kept.name}, "page": {"N": "2"}}
    kept.target.client.delete_item(TableName=kept.target.settings.log_table, Key=key)
    for command in ("verify", "rebuild"):
        failed = kept.run(command)
        assert (failed.exit_code, "beyond page 1" in failed.stderr) == (1, True)
    assert kept.rows() == rows


def test_a_rebuild_may_be_killed(kept: Kept) -> None:
    """It is killed while it restores a lost state; the next run completes the work."""
    names = [f"x{at}" for at in range(1000)]
    kept.feed.post(*map(op, names))
    kept.feed.handled(1)
    rows = kept.rows()
    assert len(rows) == len(names)
    lost = [Difference(Kind.ALIEN, row.bucket, row.key, row, None) for row in rows.values()]
    assert all(kept.target.states().repair(kept.name, lost))
    where = ["--feed", kept.name, "--endpoint-url", kept.twin.dynamodb_url]
    with subprocess.Popen([*TIDINGS, "rebuild", *where]) as run:
        until(lambda: run.poll() is not None or bool(kept.find(*names[:99])))
        run.kill()

    assert kept.run("rebuild").exit_code == 0
    assert kept.rows() == rows
