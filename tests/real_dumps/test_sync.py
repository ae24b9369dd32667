"""`tidings sync` against a running twin: the rows of oplog's contract, and its messages."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import until
from tests.twin import Twin, store
from tests.unit.admin.cloudformation import describing
from tests.unit.sync.engines import synced_by_both
from tests.unit.sync.feeds import at, log_operations
from tests.unit.sync.lines import line, written
from tidings.aws.dynamodb import served
from tidings.client.cli.main import main
from tidings.client.poster import Poster
from tidings.core import limits
from tidings.core.model.operations import Operation


@dataclass(frozen=True)
class Synced:
    """A feed of its own for a test, and the command that makes it agree with a dump."""

    twin: Twin
    folder: Path
    name: str
    engine: str

    @property
    def feed(self) -> Feed:
        return Feed(self.twin.port, self.name)

    @property
    def where(self) -> list[str]:
        return ["--feed", self.name, "--endpoint-url", self.twin.dynamodb_url]

    def sync(self, *lines: bytes, options: str = "") -> Result:
        return self.run(written(self.folder / "dump.json", lines), *options.split())

    def run(self, dump: object, *options: str, stdin: bytes = b"") -> Result:
        """Run in this process; Spark uses the existing session."""
        words = ["sync", str(dump), *self.where, "--engine", self.engine, *options]
        return CliRunner().invoke(main, words, input=stdin)

    def key(self, *roles: str) -> Path:
        """Return a file with a new key of the feed."""
        words = ["keys", "create", *roles, "--json", *self.where]
        made: dict[str, str] = json.loads(CliRunner().invoke(main, words).stdout)
        path = self.folder / made["id"]
        path.write_text(made["key"])
        return path

    def log_operations(self) -> list[tuple[str, Operation]]:
        """Return every operation of the log with its event."""
        return log_operations(self.twin, self.name)

    def events(self) -> list[str]:
        return [f"{event} {operation.id}" for event, operation in self.log_operations()]


@pytest.fixture
def synced(request: pytest.FixtureRequest, twin: Twin, tmp_path: Path, feed: str) -> Synced:
    engine = getattr(request, "param", "sail")
    if engine == "spark":
        request.getfixturevalue("spark")
    return Synced(twin, tmp_path, feed, engine)


@synced_by_both
def test_O66_O67_O70_O73_a_feed_is_made_to_agree(synced: Synced) -> None:
    """Creates, then updates, then deletes, each object once and with its own data; a report. A
    created object is an insert as any other, so that a copy has it.
    """
    synced.feed.post(
        *(op(name, timestamp=at(second)) for name, second in [("a", 1), ("b", 2), ("c", 3)]),
        *(op(name, timestamp=at(9)) for name in ("d", "e", "f")),
    )
    dump = [line(f"n{number}", 5, parents=[f"p{number}"]) for number in range(20)]
    done = synced.sync(
        line("a", 8, parents=["q"]), line("b", 2), *dump, options="--max-delete-share 1 --json"
    )

    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["creates"], summary["updates"], summary["deletes"]) == (20, 1, 1)
    assert (summary["applied"], summary["untouched"], summary["moved"]) == (22, 4, 0)
    operations = synced.log_operations()[6:]
    assert [event for event, _ in operations] == ["insert"] * 20 + ["update", "delete"]
    assert {each.id: each.parents for _, each in operations} == {
        **{f"n{number}": (f"p{number}",) for number in range(20)},
        "a": ("q",),
        "c": (),
    }
    assert "a truncated dump is not detected" in done.stderr
    copied = {each.data["id"] for each in synced.feed.copied() if each.name == "insert"}
    assert copied == {f"n{number}" for number in range(20)} | set("abdef")


def test_O68_a_dry_run_and_a_bad_line_do_nothing(synced: Synced) -> None:
    """The one says what it would do and ends well, the other names the line and fails."""
    plan = synced.folder / "kept"
    dry = synced.sync(line("a", 1), line("b", 1), options=f"--dry-run --plan {plan}")
    bad = synced.sync(line("a", 1), b"", b'{"type":"video"}')

    assert (dry.exit_code, bad.exit_code) == (0, 1)
    assert ["video", "2", "0", "0"] in [line.split() for line in dry.stdout.splitlines()]
    assert f"{synced.folder}/dump.json:3: id: is required" in bad.stderr
    assert synced.events() == []
    parts = b"".join(gzip.decompress(part.read_bytes()) for part in plan.glob("1-insert/*.gz"))
    assert len(parts.splitlines()) == 2
    assert json.loads((plan / "summary.json").read_text())["creates"] == 2
    assert synced.sync(line("a", 1), b"x", options="--skip-bad 1").exit_code == 0
    assert synced.events() == ["insert a"]


def test_O71_a_second_run_does_nothing(synced: Synced) -> None:
    """Including deletes, times below a millisecond, and types in another case."""
    synced.feed.post(op("gone", timestamp=at(1)))
    dump = [
        line("a", 2, type="ViDeO"),
        b'{"type":"video","id":"b","parents":[],"timestamp":"2026-01-01T00:00:02.1239Z"}',
    ]
    assert synced.sync(*dump, options="--max-delete-share 1").exit_code == 0
    events = synced.events()
    assert sorted(events[1:]) == ["delete gone", "insert a", "insert b"]
    again = synced.sync(*dump, options="--json")
    assert (again.exit_code, json.loads(again.stdout)["applied"]) == (0, 0)
    assert synced.events() == events


def test_what_changes_while_a_dump_is_made_stands(synced: Synced) -> None:
    """An exporter requests the end of the log and makes its dump while the feed is in use: later
    changes are neither deleted nor overwritten, though a line of the dump comes from 2099.
    """
    synced.feed.post(*(op(name, timestamp=at(1)) for name in ("gone", "kept", "both")))
    place = ["--url", synced.twin.url, "--feed", synced.name]
    began = CliRunner().invoke(main, ["log", "end", *place]).stdout.strip()
    synced.feed.post(op("new", timestamp=at(1)), op("both", "update", timestamp=at(2)))
    dump = [line("kept", 3), line("both", 5), line("late", 1).replace(b"2026", b"2099")]

    refused = synced.sync(*dump)
    assert (refused.exit_code, "timestamp: 2099-01-01T00:00:01Z must" in refused.stderr) == (
        1,
        True,
    )
    for wrong in ("yesterday", "2099-01-01T00:00:00Z", f"{began[:17]}9{began[18:]}"):
        other = synced.sync(*dump, options=f"--as-of {wrong}")
        assert (other.exit_code, "as_of: " in other.stderr) == (1, True)
    assert len(synced.events()) == 5

    done = synced.sync(*dump, options=f"--as-of {began} --max-delete-share 1")
    assert done.exit_code == 0, done.output
    assert sorted(synced.events()[5:]) == ["delete gone", "insert late", "update kept"]


def test_a_guard_stops_with_a_code_of_its_own(synced: Synced) -> None:
    """The summary is shown, the reason is said, and nothing is done."""
    synced.feed.post(*(op(name, timestamp=at(1)) for name in "abc"))
    stopped = synced.sync(line("a", 2))
    assert stopped.exit_code == 3
    assert "Stopped: 2 of 3 objects (67%) would be deleted" in stopped.stderr
    assert synced.sync(line("a", 2), options="--expect 3").exit_code == 3
    cut = synced.folder / "cut.json.gz"
    cut.write_bytes(gzip.compress(b"\n".join(line(f"x{n}", n % 60) for n in range(999)))[:-40])
    found = synced.run(cut)
    assert (found.exit_code, "the dump ends early" in found.stderr) == (3, True)
    assert len(synced.events()) == 3
    assert synced.sync(line("a", 2), options="--no-deletes").exit_code == 0
    assert synced.events()[3:] == ["update a"]


def test_a_file_that_is_not_gzip_is_named(synced: Synced) -> None:
    """With the expected format by its name; for stdin, with the error inside the gzip data."""
    plain = synced.folder / "a plain.json.gz"
    plain.write_bytes(line("a", 1))
    damaged = gzip.compress(line("a", 1))[:-8] + bytes(8)
    found = synced.run(plain)
    piped = synced.run("-", stdin=damaged)
    sentence = (
        f"Error: {plain}: a file that ends in .gz must be gzip: not a gzip file; nothing was done\n"
    )
    assert (found.exit_code, found.stderr) == (1, sentence)
    assert piped.exit_code == 1
    assert re.fullmatch(r"Error: stdin:1: cannot be read: .+; nothing was done\n", piped.stderr)
    assert synced.events() == []


def test_what_is_wrong_is_said_in_one_sentence(
    synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing dump, a feed's name, a feed that does not answer."""
    absent = synced.run("/no/dump")
    assert (absent.exit_code, "no such file" in absent.stderr) == (1, True)
    where = ["--endpoint-url", synced.twin.dynamodb_url, "--feed", "UPPER"]
    assert "feed: must be" in CliRunner().invoke(main, ["sync", "-", *where]).stderr
    dump = written(synced.folder / "dump", [line("a", 1)])
    deaf = CliRunner().invoke(main, ["sync", dump, "--endpoint-url", "http://127.0.0.1:9"])
    assert (deaf.exit_code, deaf.stderr.count("\n")) == (1, 1)


def test_a_copy_of_another_feed_is_refused(synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a twin and on a stage, before anything is planned; it says where the master is."""
    url = "https://a.example/feeds/main"
    said = f"Error: feed: is a copy of {url}: post there\n"
    chained = json.dumps({"copied": {"url": url}})
    client = store.tables_client(synced.twin.dynamodb_url)
    dump = written(synced.folder / "dump", [line("a", 1)])
    names = {name: f"tidings-local-{name}" for name in ("log", "state", "control")}
    table_outputs = {f"{name.title()}Table": table for name, table in names.items()}
    outputs = table_outputs | {"Feeds": "copied", "RetentionHours": "24", "Sources": chained}
    place, key = names["control"], served.served_key()
    before = client.get_item(TableName=place, Key=key)["Item"]
    client.put_item(TableName=place, Item=served.encode_served(["copied"], chained))
    try:
        on_endpoint = ["--endpoint-url", synced.twin.dynamodb_url, "--feed", "copied"]
        refused = CliRunner().invoke(main, ["sync", dump, *on_endpoint])
    finally:
        client.put_item(TableName=place, Item=before)
    with describing("tidings-dev", outputs) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        on_stage = CliRunner().invoke(main, ["sync", dump, "--stage", "dev", "--feed", "copied"])

    assert (refused.exit_code, refused.stderr) == (1, said)
    assert (on_stage.exit_code, on_stage.stderr) == (1, said)


def test_a_feed_is_corrected_over_http(synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address and an operator's key: the state by its rows, corrections by requests, as
    many as they need. A key that only reads, or no key, plans nothing.
    """
    synced.feed.post(*(op(name, timestamp=at(1)) for name in ("gone", "kept", "both")))
    where = ["--url", synced.twin.url, "--feed", synced.name]
    keys = {role: synced.key("--role", "read", *role.split()) for role in ("", "--role admin")}
    for role in ("read", "ingest"):
        CliRunner().invoke(main, ["feed", "password", role, "--generate", *synced.where])
    reads, steers = (["--password-file", str(keys[role])] for role in ("", "--role admin"))

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, ["sync", str(synced.folder / "dump"), *where, *words])

    dump = [line("kept", 3), line("both", 5), *(line(f"n{number}", 2) for number in range(50))]
    written(synced.folder / "dump", dump)
    until(lambda: run().exit_code == 1, 60)  # five seconds, until the passwords are known
    refused = run(*reads)
    assert (refused.exit_code, "outside_key" in refused.stderr) == (1, True)
    assert "invalid credentials (401" in run().stderr
    began = CliRunner().invoke(main, ["log", "end", *where, *reads]).stdout.strip()
    writer = synced.key("--role", "ingest")
    Poster(synced.twin.url, synced.name, password=writer.read_text()).post(
        [op("new", timestamp=at(1)), op("both", "update", timestamp=at(2))]
    )
    for foreign in (f"{began[:17]}9{began[18:]}", f"00000001{began[8:]}"):
        wrong = run(*steers, "--as-of", foreign)
        assert (wrong.exit_code, "as_of: is " in wrong.stderr) == (1, True)
    assert len(synced.events()) == 5

    monkeypatch.setattr(limits, "REQUEST_BYTES_MAX", 1_000)  # of the command: eight requests
    done = run(*steers, "--as-of", began, "--max-delete-share", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["applied"] == 52
    expected = ["delete gone", *(f"insert n{number}" for number in range(50)), "update kept"]
    assert sorted(synced.events()[5:]) == sorted(expected)
    again = run(*steers, "--as-of", began, "--json")
    assert json.loads(again.stdout)["applied"] == 0


def test_a_feed_that_nobody_serves_is_refused(synced: Synced) -> None:
    """Before anything happens: operations appended there would never be received."""
    dump = written(synced.folder / "dump", [line("a", 1)])
    where = ["--endpoint-url", synced.twin.dynamodb_url, "--feed", "unserved"]
    done = CliRunner().invoke(main, ["sync", dump, *where])
    assert (done.exit_code, done.stderr) == (1, "Error: feed: no such feed here\n")
    log = store.tables_client(synced.twin.dynamodb_url)
    found = log.query(
        TableName=store.table_name("log"),
        KeyConditionExpression="feed = :feed",
        ExpressionAttributeValues={":feed": {"S": "unserved"}},
    )
    assert found["Items"] == []
