"""Dumps on S3: which objects one is made of, and the same rules as for files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.twin import Twin
from tests.unit.sync.buckets import holding
from tests.unit.sync.feeds import log_operations, moments
from tests.unit.sync.lines import line
from tidings.client.cli.main import main
from tidings.sync import files


def keys(address: str) -> list[str]:
    return [each.address.removeprefix("s3://dumps/") for each in files.list_files(address)]


def test_an_object_or_everything_below_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix works like a folder: markers, empty and hidden objects are left out, and so are
    longer names.
    """
    names = ["a", "a/", "a/2.gz", "a/10", "a/b/c", "a/_SUCCESS", "a/_temporary/0", "a/.x", "ab"]
    with holding(monkeypatch, {name: b"x" for name in names} | {"a/": b"", "a/empty": b""}):
        assert keys("s3://dumps/a") == ["a"]
        assert keys("s3://dumps/a/") == ["a/10", "a/2.gz", "a/b/c"]
        assert keys("s3://dumps/a/b") == ["a/b/c"]
        assert keys("s3://dumps/ab") == ["ab"]
        assert keys("s3://dumps") == ["a", "a/10", "a/2.gz", "a/b/c", "ab"]
        assert keys("s3://dumps/no") == []


def test_what_is_written_is_read_until_it_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder is removed completely, and nothing else; locally and on S3."""
    with holding(monkeypatch, {}):
        for folder in (f"file://{tmp_path}", "s3://dumps"):
            for name in ("plan/1", "plan/b/2", "plan2"):
                files.write(f"{folder}/{name}", f"é{name}")
            assert files.read(f"{folder}/plan/b/2") == "éplan/b/2"
            files.remove(f"{folder}/plan")
            files.remove(f"{folder}/never")
            assert files.list_files(f"{folder}/plan") == []
            assert files.read(f"{folder}/plan2") == "éplan2"


def test_an_upload_keeps_the_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files may be local, on S3, or stdin; a name that ends in .gz keeps that ending."""
    (tmp_path / "dump").mkdir()
    for name in ("b", "a ü.gz"):
        (tmp_path / "dump" / name).write_text(name)
    with holding(monkeypatch, {"there/2": b"2", "there/1": b"1"}) as client:

        def sent(dump: str, to: str) -> tuple[str, list[tuple[str, bytes]]]:
            stdin = io.BytesIO(gzip.compress(b"line"))
            called = files.upload_dump(dump, stdin, tmp_path, f"s3://dumps/{to}/")
            return called, [
                (key, client.get_object(Bucket="dumps", Key=key)["Body"].read())
                for key in keys(f"s3://dumps/{to}/")
            ]

        called, found = sent(str(tmp_path / "dump"), "one")
        assert called == "s3://dumps/one/"
        assert found == [("one/000000000-a__.gz", b"a \xc3\xbc.gz"), ("one/000000001-b", b"b")]
        assert sent("s3://dumps/there", "two")[1] == [
            ("two/000000000-1", b"1"),
            ("two/000000001-2", b"2"),
        ]
        called, _ = sent("-", "three")
        assert called == "s3://dumps/three/000000000-stdin.gz"
        with pytest.raises(files.NoDump):
            sent("s3://dumps/none", "four")


def test_a_dump_is_as_large_as_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This holds for a local folder, S3 and stdin; Spark's settings depend on the size."""
    (tmp_path / "dump").mkdir()
    for name in ("1", "2"):
        (tmp_path / "dump" / name).write_bytes(bytes(100))

    def size(dump: str, stdin: bytes = b"") -> int:
        return files.copy_dump(dump, io.BytesIO(stdin), tmp_path).size

    with holding(monkeypatch, {"d/1": bytes(30), "d/2": bytes(4)}):
        assert size("s3://dumps/d") == 34
    assert size(str(tmp_path / "dump")) == 200
    assert size(str(tmp_path / "dump" / "*")) == 200
    assert size("-", bytes(5)) == 5


def sync(twin: Twin, feed: str, dump: str, *options: str) -> Result:
    where = ["--feed", feed, "--endpoint-url", twin.dynamodb_url]
    return CliRunner().invoke(main, ["sync", dump, *where, *options])


def test_a_dump_on_s3(twin: Twin, feed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain and gzipped objects; of an object of the feed the line in the last key counts."""
    objects = {
        "d/": b"",
        "d/_SUCCESS": b"",
        "d/9.json": line("a", 9) + b"\n",
        "d/10 é*[1].json.gz": gzip.compress(line("a", 2) + b"\n" + line("b", 2)),
        "d/10/odd name": line("c", 1),
    }
    with holding(monkeypatch, objects):
        done = sync(twin, feed, "s3://dumps/d", "--expect", "4")
    assert done.exit_code == 0, done.output
    assert moments(twin, feed) == {
        "a": "2026-01-01T00:00:09Z",
        "b": "2026-01-01T00:00:02Z",
        "c": "2026-01-01T00:00:01Z",
    }


def test_what_is_wrong_with_a_dump_on_s3(
    twin: Twin, feed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad lines by address, gzip data that are cut, objects and buckets that are not there."""
    cut = gzip.compress(b"\n".join(line(f"x{n}", n % 60) for n in range(999)))[:-40]
    objects = {"bad/1": line("a", 1), "bad/x y": line("b", 1) + b"\n\nbad", "cut.gz": cut}
    with holding(monkeypatch, objects):
        bad = sync(twin, feed, "s3://dumps/bad")
        ends_early = sync(twin, feed, "s3://dumps/cut.gz")
        absent = [sync(twin, feed, dump) for dump in ("s3://dumps/no", "s3://nobody/d")]
    assert (bad.exit_code, "\ns3://dumps/bad/x y:3: must be JSON" in bad.stderr) == (1, True)
    assert (ends_early.exit_code, "the dump ends early" in ends_early.stderr) == (3, True)
    assert [each.exit_code for each in absent] == [1, 1]
    assert absent[0].stderr == "Error: s3://dumps/no: no such file\n"
    assert "NoSuchBucket" in absent[1].stderr
    assert log_operations(twin, feed) == []
