"""What is asked of CloudWatch, and what a load should have used."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tidings.aws.config import deployment

from infra.sandbox import measuring
from infra.sandbox.ground import Ground
from infra.sandbox.steps import CouldNot
from tests.infra.sandbox.account import Account
from tests.infra.sandbox.conftest import FUNCTION_LOGS, WORK


def _logged(account: Account, *records: dict[str, Any]) -> None:
    """Lambda's lines of calls of `ingest`, in the JSON that the functions are told to log in."""
    logs = account.client("logs")
    where = {"logGroupName": FUNCTION_LOGS, "logStreamName": "one"}
    logs.create_log_stream(**where)
    now = int(time.time() * 1000)
    lines = ({"type": "platform.report", "record": each} for each in records)
    events = [{"timestamp": now, "message": json.dumps(each)} for each in lines]
    logs.put_log_events(**where, logEvents=events)


@pytest.fixture
def logs(account: Account) -> None:
    """A log group for each function."""
    for each in deployment.FUNCTIONS:
        account.client("logs").create_log_group(logGroupName=f"/aws/lambda/{WORK}-{each.name}")


@pytest.mark.usefixtures("logs")
def test_cold_starts_are_told_by_function(account: Account, ground: Ground) -> None:
    """Calls of functions that were warm have none."""
    cold = [{"metrics": {"durationMs": 9.0, "initDurationMs": ms}} for ms in (400.0, 300.0, 900.0)]
    _logged(account, *cold, {"metrics": {"durationMs": 9.0}})
    assert measuring.cold_starts(ground) == {
        "ingest, 512 MB": "3 starts: median 400 ms, most 900 ms"
    }


@pytest.mark.usefixtures("logs")
def test_without_lines_nothing_is_known_of_cold_starts(ground: Ground) -> None:
    """It is no failure of the stage."""
    with pytest.raises(CouldNot):
        measuring.cold_starts(ground)


def test_a_load_is_reckoned_as_the_bill_is() -> None:
    """A page each, until pages come faster than a stream is polled: then runs are shared."""
    slow, fast = measuring.of_load(100, 100), measuring.of_load(1000, 100)
    used = json.loads(measuring.MEASURED.read_text())["used"]
    post, state = used["post of 1"]["writes"], used["follow-state, a page of 1"]["writes"]
    push = used["push of a page of 1 to 25"]["writes"]
    assert slow["write units"] == 100 * (post + state + push)
    assert fast["write units"] == 1000 * post + 400 * (state + push) + 600
    assert (fast["calls of ingest"], fast["calls of follow-state"]) == (1000, 400)
