"""DynamoDB Local: the files that Maven fetched, its key, its start and its end."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import boto3
import pytest

from tests.twin import dynamodb_local, store
from tests.twin.dynamodb_local import KEY_FILE, WrongSum
from tidings.aws.config import twin_keys
from tidings.aws.config.deployment import TABLES


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """Return a copy of the engine, by links."""
    if not dynamodb_local.CACHE.is_dir():
        pytest.skip("the engine was never fetched here")
    folder = tmp_path / "jars"
    shutil.copytree(dynamodb_local.CACHE, folder, copy_function=lambda a, b: Path(b).symlink_to(a))
    return folder


def test_what_was_tested_is_taken(jars: Path) -> None:
    """All of it, natives too."""
    dynamodb_local.check_sums(jars)


@pytest.mark.parametrize("change", ["another", "missing", "more"])
def test_anything_else_is_refused(jars: Path, change: str) -> None:
    """The error names the jar, which has other bytes, is missing, or is one too many."""
    some = sorted(jars.glob("*.jar"))[3]
    changed = jars / "added.jar" if change == "more" else some
    changed.unlink(missing_ok=True)
    if change != "missing":
        changed.write_bytes(b"something else")
    with pytest.raises(WrongSum, match=changed.name):
        dynamodb_local.check_sums(jars)


SHARED = "shared-local-instance.db"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the home of a user without twins."""
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setattr(Path, "home", lambda: found)
    return found


def test_a_key_is_told_to_its_user_alone(home: Path) -> None:
    """By the port, for programs on this machine, and while the twin runs."""
    twin_keys.publish(8044, "k1")
    twin_keys.publish(8044, "k2")
    (file,) = (each for each in home.rglob("*") if each.is_file())

    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    for address in ("http://127.0.0.1:8044", "http://localhost:8044/", "http://[::1]:8044"):
        assert twin_keys.credentials(address)["aws_access_key_id"] == "k2"
    for address in ("http://127.0.0.1:8045", "http://elsewhere:8044", "http://127.0.0.1", ""):
        assert twin_keys.find(address) is None
    twin_keys.forget(8044)
    assert twin_keys.credentials("http://127.0.0.1:8044")["aws_access_key_id"] == "local"


def test_the_key_stays_with_its_folder(tmp_path: Path) -> None:
    """Other users may not read it, and another folder has another key."""
    (tmp_path / "other").mkdir()
    key = dynamodb_local._key_of(tmp_path)

    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert dynamodb_local._key_of(tmp_path) == key
    assert dynamodb_local._key_of(tmp_path / "other") != key
    assert key.isalnum() and len(key) == 32


def test_an_earlier_twins_database_gets_a_key(tmp_path: Path) -> None:
    """This holds if its journal is left, and if an upgrade was killed before or between the two
    files."""
    for name in (SHARED, f"{SHARED}-journal"):
        (tmp_path / name).write_text(name)
    key = dynamodb_local._key_of(tmp_path)
    (tmp_path / f"{SHARED}").write_text("again")
    assert dynamodb_local._key_of(tmp_path) == key

    files = [each for each in tmp_path.iterdir() if each.is_file()]
    found = {each.name: each.read_text() for each in files if each.name != KEY_FILE}
    named = f"{key}_us-east-1.db"
    assert found == {named: "again", f"{named}-journal": f"{SHARED}-journal"}
    assert all(each.stat().st_mode & 0o077 == 0 for each in files)


@pytest.mark.java
def test_who_has_not_the_key_finds_nothing(tmp_path: Path) -> None:
    """The folder of an earlier twin without a key is found again unchanged."""
    data = tmp_path / "dynamodb"
    data.mkdir()
    with asyncio.Runner() as runner:
        for _ in range(2):
            running = runner.run(dynamodb_local.start(port=0, data=data, log=tmp_path / "log"))
            try:
                client = store.tables_client(running.url)
                store.create_table(client, "kept", TABLES[0])
                assert client.list_tables()["TableNames"] == ["kept"]
                assert _tables_with("local", running.url) == []
            finally:
                runner.run(running.stop())
            file = data / KEY_FILE
            (data / f"{file.read_text()}_us-east-1.db").rename(data / SHARED)
            file.unlink()


def _tables_with(key: str, url: str) -> list[str]:
    client = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=key,
    )
    return client.list_tables()["TableNames"]
