"""`tidings archive compact` and `tidings tables`: refusals, output, and exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tests.twin import Twin
from tests.unit.core.scene import line
from tests.unit.lake.parts import Scene, fold, kept
from tests.unit.spark.feeds import fill
from tidings.client import Poster
from tidings.client.cli.main import main
from tidings.core.archive import segments
from tidings.core.archive.segments import Span
from tidings.lake import iceberg
from tidings.lake.command import alone
from tidings.lake.status import size_of
from tidings.lake.warehouse import NoIceberg, Warehouse, in_folder
from tidings.server.running import Server
from tidings.sync import spark_session

PARTS = 6  # which become one
STUCK = """\
import time
from tidings.http.outbound.folder_archive import FolderArchive as Archive

def stuck(self, *part, put=Archive.put):
    put(self, *part)
    time.sleep(600)  # so that nothing is removed yet, however fast the machine is

Archive.put = stuck
"""
TIDINGS = [sys.executable, "-m", "tidings.client.cli.main"]
COLD_S = 240.0  # until Spark has started and written a part, on a busy machine


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["archive", *arguments])


def tables(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tables", *arguments])


def where(scene: Scene) -> list[str]:
    return ["--archive", str(scene.folder / "parts"), "--table", str(scene.folder / "lake")]


def compact(scene: Scene, *options: str) -> Result:
    return invoke("compact", *where(scene), *options)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ((), "name the feed with --url"),
        (("--url", "http://x", "--stage", "dev"), "name the feed once"),
        (("--until", "soon"), "--until 'soon': must be a page, or an age"),
    ],
)
def test_without_a_bound_nothing_is_compacted(
    tmp_path: Path, options: tuple[str, ...], rule: str
) -> None:
    """The error is a wrong usage and names the missing option; nothing is started."""
    done = invoke("compact", "--archive", str(tmp_path), "--table", str(tmp_path), *options)

    assert (done.exit_code, rule in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("archive", "table", "said"),
    [("ftp://x", "lake", "must be s3://"), ("parts", "s3://b/lake", "must be a folder")],
)
def test_what_is_no_address_is_refused(tmp_path: Path, archive: str, table: str, said: str) -> None:
    """In one sentence, with its value."""
    done = invoke("compact", "--archive", archive, "--table", table, "--until", "9")

    assert (done.exit_code, said in done.stderr) == (1, True)


def test_a_feed_that_does_not_answer_is_no_bound(scene: Scene) -> None:
    """It is a failure, and nothing is compacted."""
    scene.put(kept(1, line("a"), line("a")))
    scene.put(kept(2))

    done = compact(scene, "--url", "http://127.0.0.1:9")

    assert done.exit_code == 1
    assert len(scene.entries()) == 2


def test_tables_follow_a_feed_and_are_asked(twin: Twin, scene: Scene) -> None:
    """The commands print a line for each batch, the lag of each table, and the result of SQL, as a
    table or as JSON. An error is one sentence.
    """
    fill(twin, "asked", 3)
    columns = scene.folder / "columns.json"
    columns.write_text('{"video": {"n": "bigint"}}')
    feed = ["--feed", "asked", "--table", str(scene.folder / "lake")]
    named = [*feed, "--url", twin.url]

    done = tables("follow", *named, "--once", "--columns", str(columns), "--json")
    assert done.exit_code == 0, done.output
    (batch,) = map(json.loads, done.stdout.splitlines())
    assert (batch["operations"], batch["page"]) == (15, 3)
    told = tables("status", *named, "--json")
    assert _lags(told.stdout) == {
        "asked_history": (None, 0, 0),
        "asked_latest": (None, 0, 0),
        "asked_type_video": ("video", 0, 0),
    }

    fill(twin, "asked", 2, begin=15)
    behind = {(None, 2, 10), ("video", 2, 10)}
    # Over HTTP the end of a feed is as old as its status, a second.
    until(lambda: set(_lags(tables("status", *named, "--json").stdout).values()) == behind)
    shown = tables("status", *named)
    assert "asked ends with page 5" in shown.stdout and "pages behind" in shown.stdout

    done = tables("follow", *named, "--once")
    assert done.exit_code == 0 and "page 5: 10 operations in" in done.stdout, done.output
    counted = "SELECT count(*) AS n FROM history"
    asked = tables("query", counted, *feed, "--json")
    shown = tables("query", "SELECT id, n FROM video ORDER BY n", *feed)
    wrong = tables("query", "SELEC", *feed)
    other = tables("query", "SELECT 1", "--table", feed[-1])
    assert json.loads(asked.stdout) == {"n": 25}
    assert "o" in shown.stdout
    assert wrong.exit_code == other.exit_code == 1
    assert "has no tables of the feed main" in other.stderr


@pytest.mark.spark
def test_it_follows_until_it_is_told_to_end(tmp_path: Path) -> None:
    """Ctrl-C ends it: the operations are in the tables, and Spark prints nothing. A wrong name is
    an error.
    """
    table = ["--table", str(tmp_path / "lake")]
    with Server() as server, Poster(server.url) as poster:
        poster.post([{"event": "insert", "type": "video", "id": "a"}])
        follow = [*TIDINGS, "tables", "follow", *table, "--every", "1", "--url", server.url]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            assert run.stdout is not None and run.stderr is not None
            assert run.stdout.readline().startswith(b"page 1: 1 operations in")
            run.send_signal(signal.SIGINT)
            assert (run.stdout.read(), run.stderr.read(), run.wait()) == (b"", b"", 0)

    assert 1_000 < size_of(in_folder(table[1])) < spark_session.SMALL_BYTES
    query = [*TIDINGS, "tables", "query", *table]
    asked = subprocess.run([*query, "SELECT nope FROM history"], capture_output=True, check=False)
    assert asked.returncode == 1 and asked.stderr.startswith(b"Error: Spark failed: [UNRESOLVED")
    assert len(asked.stderr) < 1_000


def test_only_one_process_follows_into_a_folder(twin: Twin, tmp_path: Path) -> None:
    """A second process gets an error; so do an invalid address, an invalid file of columns and a
    guess.
    """
    warehouse = Warehouse(str(tmp_path))
    with alone(warehouse, "main"):
        done = tables("follow", "--table", str(tmp_path), "--url", twin.url, "--once")
    said = "another process updates the tables of main in"
    assert (done.exit_code, said in done.stderr) == (1, True)

    bad = tmp_path / "columns.json"
    bad.write_text('{"video": "guess"}')
    for options, said in (
        (["--columns", str(bad)], "columns of 'video'"),
        (["--archive", "parts"], "--archive requires"),
        (["--table", "s3://b/lake"], "must be a folder"),
    ):
        done = tables("follow", "--table", str(tmp_path), "--url", twin.url, "--once", *options)
        assert said in done.stderr
        assert done.exit_code in (1, 2)
    assert tables("status", "--url", twin.url).exit_code == 2


def _lags(told: str) -> dict[str, tuple[str | None, int, int]]:
    """Return for each table its type, and its lag in pages and operations."""
    return {
        each["table"]: (each["type"], each["lag"]["pages"], each["lag"]["operations"])
        for each in json.loads(told)["tables"]
    }


def test_a_killed_process_leaves_nothing_half(scene: Scene) -> None:
    """It is killed while it writes parts: the next run completes the work, and nothing is
    missing."""
    for number in range(PARTS):
        scene.put(kept(number + 1, line("a", data=number), line("a", data=-number)))
    scene.put(kept(PARTS + 1, line("b")))
    before, sizes, spans = scene.entries(), _sizes(scene), scene.spans()
    options = ["--until", "1000000", "--json"]
    scene.follow()
    # It runs as Python starts, in a task as well.
    (scene.folder / "sitecustomize.py").write_text(STUCK)
    with subprocess.Popen(
        [*TIDINGS, "archive", "compact", *where(scene), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(scene.folder), *sys.path[1:]])},
    ) as run:
        until(lambda: run.poll() is not None or _sizes(scene) != sizes, COLD_S)
        os.killpg(run.pid, signal.SIGKILL)

    assert run.returncode == -signal.SIGKILL
    assert [each for each in scene.spans() if each not in spans] == [Span(PARTS, 1)]
    assert len(scene.spans()) == len(spans) + 1
    _check(scene, before)
    done = compact(scene, *options)
    assert done.exit_code == 0, done.output
    _check(scene, before)
    assert [each[0] for each in scene.entries()] == [PARTS, PARTS + 1]


def _sizes(scene: Scene) -> list[int]:
    folder = scene.folder / "parts" / "archive" / scene.feed
    return sorted(path.stat().st_size for path in folder.glob("[0-9]*"))


def _check(scene: Scene, before: list[tuple[int, int, str]]) -> None:
    assert sorted({*scene.entries(), *scene.history()}) == sorted(before)
    assert fold(scene.entries()) == fold(before)
    for span in scene.spans():
        assert segments.decode(scene.store.get(scene.feed, span) or b"")


def test_without_a_network_the_sentence_says_what_is_missing(
    tmp_path: Path, repository: tuple[str, Path]
) -> None:
    """The error may also be the status of the answer; a partial download is never kept."""
    url, _ = repository
    cache = tmp_path / "cache"
    for address, reason in (("http://127.0.0.1:1", "refused"), (url, "404")):
        with pytest.raises(NoIceberg, match=f"{reason}.*store the file as {cache}"):
            iceberg.jar(cache=cache, repository=address)
    assert not list(cache.glob("*"))


def test_a_jar_is_downloaded_once_without_maven(
    tmp_path: Path, repository: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url, files = repository
    jar = iceberg.Jar("iceberg-aws-bundle", hashlib.sha256(b"jar").hexdigest())
    (files / jar.path).parent.mkdir(parents=True)
    (files / jar.path).write_bytes(b"jar")
    assert iceberg.CENTRAL.startswith("https://")
    assert iceberg.jar(jar, tmp_path / "cache", url).read_bytes() == b"jar"
    (files / jar.path).unlink()
    assert iceberg.jar(jar, tmp_path / "cache", url).read_bytes() == b"jar"


def test_a_jar_with_another_sum_is_never_used(tmp_path: Path, repository: tuple[str, Path]) -> None:
    """Whether it is downloaded or in the cache; each of the two jars has its own sum."""
    url, files = repository
    cache = tmp_path / "cache"
    (files / iceberg.AWS.path).parent.mkdir(parents=True)
    (files / iceberg.AWS.path).write_text("other")
    with pytest.raises(NoIceberg, match=f"{iceberg.AWS.file}: the SHA-256 must be 38f0"):
        iceberg.jar(iceberg.AWS, cache, url)
    assert not list(cache.glob("*"))

    (cache / iceberg.RUNTIME.file).write_text("other")
    with pytest.raises(NoIceberg, match=f"{iceberg.RUNTIME.file}: the SHA-256 must be d6ea"):
        iceberg.jar(cache=cache)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the URL of a Maven repository, and the folder of its files."""
    files = tmp_path / "repository"
    files.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(files))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", files
        server.shutdown()
