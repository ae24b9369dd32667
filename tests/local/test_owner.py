"""What `tidings local` sets for its feeds when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from tidings.aws.dynamodb.profiles import DynamoDBProfiles
from tidings.core.auth.passwords import Verifier
from tidings.core.settings.feed import Profile
from tidings.local import owner
from tidings.local.options import REGION, Options
from tidings.local.problems import Problem
from tidings.local.store import tables


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBProfiles]:
    """Those of a twin's tables."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with mock_aws():
        tables.create(boto3.client("dynamodb", region_name=REGION))
        yield DynamoDBProfiles(
            boto3.client("dynamodb", region_name=REGION), tables.name_of("control")
        )


def start(options: Options, *feeds: str) -> None:
    change = owner.wanted(options)
    if change is not None:
        owner.apply(boto3.client("dynamodb", region_name=REGION), feeds or ("main",), change)


def test_nothing_named_changes_nothing() -> None:
    """A twin with --data keeps what was set before."""
    assert owner.wanted(Options()) is None


def test_what_is_named_is_set_for_every_feed(profiles: DynamoDBProfiles) -> None:
    """And the rest of a profile stays."""
    start(Options(object_url="http://api/{{id}}", compat="oplog"), "main", "other")
    start(Options(leave=True), "main")
    start(Options(compat=""), "main")

    assert profiles.profile("main") == Profile("http://api/{{id}}", leave=True, version=3)
    assert profiles.profile("other") == Profile("http://api/{{id}}", "oplog", version=1)


def test_passwords_come_from_files(profiles: DynamoDBProfiles, tmp_path: Path) -> None:
    """One line each, and only hashes are kept."""
    (tmp_path / "read").write_text("the read one\n")
    (tmp_path / "ingest").write_text("the ingest one")
    start(Options(read_password_file=tmp_path / "read", ingest_password_file=tmp_path / "ingest"))

    found = profiles.profile("main")
    assert Verifier(b"key").matches("the read one", found.read_passwords)
    assert Verifier(b"key").matches("the ingest one", found.ingest_passwords)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"short", "must have 8 to 256 bytes, has 5"),
        (b"one password\nanother one\n", "must not hold control characters"),
        (b"\xff\xfe not a text", "cannot read the password in "),
    ],
)
def test_a_file_that_holds_no_password(tmp_path: Path, content: bytes, sentence: str) -> None:
    """It is named, what is in it is not told."""
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(Problem) as refused:
        owner.wanted(Options(read_password_file=file))

    assert sentence in str(refused.value) and str(file) in str(refused.value)
    assert "another one" not in str(refused.value)


def test_a_template_that_breaks_its_rule() -> None:
    """The option is named."""
    with pytest.raises(Problem, match=r"^--object-url: may hold \{\{type\}\} and \{\{id\}\}"):
        owner.wanted(Options(object_url="/{{ID}}"))
