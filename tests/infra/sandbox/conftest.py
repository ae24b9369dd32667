"""An account of moto's, and a stage in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from infra.remains import BUCKET, LOGS, TABLE, Part
from infra.sandbox import leaving
from infra.sandbox.ground import Ground
from tests.infra.sandbox.account import REGION, Account

STAGE = "sandbox-ab12cd"
WORK, DATA = f"tidings-{STAGE}", f"tidings-{STAGE}-data"
FUNCTION_LOGS = f"/aws/lambda/{WORK}-ingest"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto, and no account of anybody's."""
    for secret in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(secret, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to wait for moto: what is there after a few looks stays."""
    monkeypatch.setattr(leaving, "_LOOK_S", 0)
    monkeypatch.setattr(leaving, "LINGER_S", 0.5)


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def ground(account: Account, tmp_path: Path) -> Ground:
    return Ground(STAGE, "2026-11-25T12:00:00Z", account, tmp_path)


def deploy(account: Account) -> None:
    """A stage as small as can be, with something in its bucket."""
    account.stack(DATA, Log=Part(TABLE, f"{DATA}-log"), Syncs=Part(BUCKET, f"{DATA}-syncs"))
    account.stack(WORK, Logs=Part(LOGS, FUNCTION_LOGS))
    account.client("s3").put_object(Bucket=f"{DATA}-syncs", Key="a", Body=b"1")
