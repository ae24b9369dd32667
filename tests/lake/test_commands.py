"""`tidings archive compact` and `query`: what is refused, what is shown, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tidings.client.cli.main import main
from tidings.core.archive import segments
from tidings.lake import iceberg
from tidings.lake.errors import NoIceberg

from tests.core.scene import line
from tests.lake.parts import Scene, fold, kept
from tests.oplog.wire import until

PARTS = 6  # each is written by itself
STUCK = """\
import os, time
from tidings.web.outbound.folder_archive import FolderArchive as Archive

def stuck(self, *part, put=Archive.put):
    try:
        os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        time.sleep(600)  # so that exactly one part is written, however fast the machine is
    put(self, *part)

Archive.put = stuck
"""
COLD_S = 240.0  # until Spark has started and written a part, on a busy machine


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["archive", *arguments])


def where(scene: Scene) -> list[str]:
    return ["--archive", str(scene.folder / "parts"), "--table", str(scene.folder / "lake")]


def compact(scene: Scene, *options: str) -> Result:
    return invoke("compact", *where(scene), *options)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ((), "name the feed by --url"),
        (("--url", "http://x", "--stage", "dev"), "say once where the feed is"),
        (("--until", "soon"), "--until 'soon': must be a page, or an age"),
    ],
)
def test_without_a_bound_nothing_is_compacted(
    tmp_path: Path, options: tuple[str, ...], rule: str
) -> None:
    """The usage is wrong, and the sentence says what is missing; nothing was started."""
    done = invoke("compact", "--archive", str(tmp_path), "--table", str(tmp_path), *options)

    assert (done.exit_code, rule in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("archive", "table", "said"),
    [("ftp://x", "lake", "must be s3://"), ("parts", "s3://b/lake", "must be a folder")],
)
def test_what_is_no_address_is_refused(tmp_path: Path, archive: str, table: str, said: str) -> None:
    """In one sentence, with its value."""
    done = invoke("compact", "--archive", archive, "--table", table, "--keep-parts")

    assert (done.exit_code, said in done.stderr) == (1, True)


def test_a_feed_that_does_not_answer_is_no_bound(scene: Scene) -> None:
    """It is a failure, and nothing is compacted."""
    scene.put(kept(1, line("a"), line("a")))
    scene.put(kept(2))

    done = compact(scene, "--url", "http://127.0.0.1:9")

    assert done.exit_code == 1
    assert len(scene.entries()) == 2


def test_a_guard_stops_with_its_own_code(scene: Scene) -> None:
    """Pages are missing: 3, as a sync that is stopped."""
    scene.put(kept(1, line("a")))
    scene.put(kept(3))
    scene.put(kept(4))

    done = compact(scene, "--until", "9")

    assert done.exit_code == 3
    assert "Stopped: the archive lacks the pages 2 to 2" in done.stderr


def test_tables_are_asked_in_sql(scene: Scene) -> None:
    """Shown as a table or as JSON; the summary of a run is shown too."""
    for number in range(1, 4):
        scene.put(kept(number, line("a", data={"n": number}), line("b", event="delete")))

    done = compact(scene, "--until", "9999d", "--keep-parts")
    assert done.exit_code == 0, done.output
    assert "operations added to history" in done.stdout

    table = ["--table", str(scene.folder / "lake")]
    shown = invoke("query", "SELECT id, data FROM latest ORDER BY id", *table)
    asked = invoke(
        "query", "SELECT count(*) AS n FROM history WHERE event='delete'", *table, "--json"
    )
    wrong = invoke("query", "SELEC", *table)
    other = invoke("query", "SELECT 1", "--feed", "other", *table)

    assert '{"n":2}' in shown.stdout and "null" in shown.stdout
    assert json.loads(asked.stdout) == {"n": 2}
    assert wrong.exit_code == other.exit_code == 1
    assert "has no tables of the feed other" in other.stderr


def test_a_killed_process_leaves_nothing_half(scene: Scene) -> None:
    """In the midst of writing parts: the next run ends the work, and nothing is missing."""
    for number in range(PARTS):
        scene.put(kept(2 * number + 1, line("a", data=number), line("a", data=-number)))
    scene.put(kept(2 * PARTS + 1, line("b")))
    before, sizes = scene.entries(), _sizes(scene)
    options = ["--until", "1000000", "--allow-gaps", "--json"]
    tidings = [sys.executable, "-m", "tidings.client.cli.main"]

    # It runs as Python starts, in a task as well.
    stuck = STUCK.format(mark=str(scene.folder / "written"))
    (scene.folder / "sitecustomize.py").write_text(stuck)
    with subprocess.Popen(
        [*tidings, "archive", "compact", *where(scene), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(scene.folder)},
    ) as run:
        until(lambda: run.poll() is not None or _sizes(scene) != sizes, COLD_S)
        os.killpg(run.pid, signal.SIGKILL)

    assert run.returncode == -signal.SIGKILL
    assert sum(each.slots is not None for each in scene.pages()) == 1
    _check(scene, before)
    done = compact(scene, *options)
    assert done.exit_code == 0, done.output
    _check(scene, before)
    assert [each[0] for each in scene.entries()] == [2 * PARTS - 1, 2 * PARTS + 1]


def _sizes(scene: Scene) -> list[int]:
    folder = scene.folder / "parts" / "archive" / scene.feed
    return sorted(path.stat().st_size for path in folder.glob("[0-9]*"))


def _check(scene: Scene, before: list[tuple[int, int, str]]) -> None:
    assert sorted({*scene.entries(), *scene.history()}) == sorted(before)
    assert fold(scene.entries()) == fold(before)
    for span in scene.spans():
        assert segments.decode(scene.store.get(scene.feed, span) or b"")


def test_without_maven_the_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what Maven says, where it fails; half of a library is never kept."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoIceberg, match="there is no mvn here"):
        iceberg.jar(cache=tmp_path / "cache")

    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no such artifact'\nexit 1\n")
    maven.chmod(0o755)
    with pytest.raises(NoIceberg, match="no such artifact"):
        iceberg.jar(cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_a_jar_with_another_sum_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether Maven brings it or the cache holds it; each of the two jars has its own sum."""
    cache = tmp_path / "cache"
    maven = tmp_path / "mvn"
    maven.write_text(f"#!/bin/sh\necho other > {iceberg.AWS.file}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    with pytest.raises(NoIceberg, match=f"{iceberg.AWS.file}: the SHA-256 must be 38f0"):
        iceberg.jar(iceberg.AWS, cache)
    assert not list(cache.glob("*"))

    (cache / iceberg.RUNTIME.file).write_text("other")
    with pytest.raises(NoIceberg, match=f"{iceberg.RUNTIME.file}: the SHA-256 must be d6ea"):
        iceberg.jar(cache=cache)
