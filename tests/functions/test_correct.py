"""correct: one part of a plan, from S3 into the log."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from functions.correct.handler import handle as correct
from tests.functions.cloud import Cloud
from tests.unit.core.scene import line
from tidings.aws import clients
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE, Correction, correction

BUCKET, KEY = "syncs", "plans/one/part-0.gz"


def planned(*names: str) -> list[Correction]:
    return [correction(line(name, "insert"), NOWHERE) for name in names]


def packed(*wanted: Correction) -> bytes:
    text = "".join(f"{corrections.encode(each)}\n" for each in wanted)
    return gzip.compress(text.encode(), mtime=0)  # the same in every process that collects it


def store(part: bytes) -> None:
    clients.objects().create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    clients.objects().put_object(Bucket=BUCKET, Key=KEY, Body=part)


def request(**fields: Any) -> dict[str, Any]:
    return {"feed": "main", "through": 0, "bucket": BUCKET, "key": KEY} | fields


def test_a_part_becomes_a_page(cloud: Cloud) -> None:
    """The answer says what became of it, in JSON."""
    wanted = planned("a", "b")
    store(packed(*wanted))

    answer = correct(request(), None)

    assert answer == {"applied": 2, "moved": 0, "done": 0, "behind": 2, "complete": True}
    (page,) = stage().stores.log.read("main", 0)
    assert page.lines == [each.line for each in wanted]


def test_a_run_is_repeated_or_continued(cloud: Cloud) -> None:
    """A retry of Lambda's finds all done; *behind* skips the lines already handled."""
    store(packed(*planned("a", "b")))
    correct(request(), None)

    assert correct(request(), None)["done"] == 2
    assert correct(request(behind=1), None) == {
        "applied": 0,
        "moved": 0,
        "done": 1,
        "behind": 2,
        "complete": True,
    }


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (packed(*planned("a"))[:-9], "whole gzip file"),
        (b"no gzip", "whole gzip file"),
        (gzip.compress(b'{"event":', mtime=0), "line 1"),
        (gzip.compress(b"[" * 1_000_000, mtime=0), "line 1"),
    ],
)
def test_a_damaged_part_says_so(cloud: Cloud, part: bytes, reason: str) -> None:
    """Cut, not packed, or not a plan: nothing of the damaged piece is applied."""
    store(part)

    with pytest.raises(InvalidOperation, match=reason):
        correct(request(), None)

    assert stage().stores.log.read("main", 0) == []


def test_a_part_is_not_larger_than_a_run_can_hold(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before it is read."""
    monkeypatch.setattr("tidings.aws.s3.PLAN_PART_BYTES_MAX", 10)
    store(packed(*planned("a")))

    with pytest.raises(TooLarge, match="at most 10 bytes"):
        correct(request(), None)


def test_a_run_yields_before_lambda_kills_it() -> None:
    """With time for the part to be read and for the last batch to wait for writers."""
    spare_ms = limits.CORRECT_TIMEOUT_S * 1000 - limits.CORRECT_RUN_MS
    waits_ms = limits.CORRECT_POLLS_MAX + limits.CORRECT_YIELD_POLLS_MAX
    waits_ms *= limits.CORRECT_POLL_MS * limits.APPEND_ATTEMPTS_MAX

    assert spare_ms > waits_ms
