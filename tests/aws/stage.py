"""The deployed stage that the tests of this folder run against, and their requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import httpx
import pytest

from infra import ROOT
from tidings.aws.config.stages import Addresses, stack_name

WAIT_S = 90  # for a function that starts cold, on an emulator in a process of its own
ATTEMPTS = 6  # half a minute in all: a new table splits, a throttle passes
_AGAIN = (429, 500, 502, 503, 504)
_TIDINGS = Path(sys.executable).parent / "tidings"
_CALL = '{ $.type = "platform.report" }'


@dataclass(frozen=True, slots=True)
class Stage:
    """*region* is where the stage called *name* is deployed."""

    name: str
    addresses: Addresses
    region: str

    @property
    def operations_stream(self) -> str:
        """The URL of the event stream."""
        return f"{self.addresses.stream.rstrip('/')}/ops"

    def require_aws(self, reason: str) -> None:
        """Skip the test on an emulator, which cannot show it for *reason*."""
        if "AWS_ENDPOINT_URL" in os.environ:
            pytest.skip(f"only AWS can show it: {reason}")

    def client(self, service: str) -> Any:
        """Return a boto3 client for *service*."""
        made: Any = boto3.client  # its stubs require the name of the service as a literal
        return made(service)

    def named(self, what: str) -> str:
        """Return the name of a function of the stage, or of a resource that a test creates."""
        return f"{stack_name(self.name)}-{what}"

    def resources(self, stack: str) -> dict[str, tuple[str, str]]:
        """Return type and physical name of each resource of *stack*, by logical id."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")
        return {
            each["LogicalResourceId"]: (each["ResourceType"], each["PhysicalResourceId"])
            for page in pages.paginate(StackName=stack)
            for each in page["StackResourceSummaries"]
        }

    def post(self, operations: Sequence[dict[str, Any]]) -> list[str]:
        """Post *operations*, again if PROTOCOL.md requires a retry; return their ids."""
        headers = {"Prefer": "return=representation", "Idempotency-Key": uuid4().hex}
        url = f"{self.addresses.feed}/ops"
        for attempt in range(ATTEMPTS):
            answer = httpx.post(url, json=operations, headers=headers, timeout=WAIT_S)
            if answer.status_code not in _AGAIN:
                break
            time.sleep(2**attempt / 2)
        assert answer.status_code == httpx.codes.OK, answer.text[:200]
        ids: list[str] = answer.json()["ids"]
        return ids

    def tidings(self, *arguments: str, fine: tuple[int, ...] = (0,)) -> str:
        """Return what the command `tidings` prints; it must end with a code in *fine*."""
        return run([str(_TIDINGS), *arguments], fine=fine)

    def calls(self, function: str, since: datetime, pattern: str = _CALL) -> list[dict[str, Any]]:
        """Return the metrics in Lambda's records of calls of *function* since then."""
        return list(self._calls(function, since, pattern))

    def _calls(self, function: str, since: datetime, pattern: str) -> Iterator[dict[str, Any]]:
        pages = (
            self.client("logs")
            .get_paginator("filter_log_events")
            .paginate(
                logGroupName=f"/aws/lambda/{self.named(function)}",
                filterPattern=pattern,
                startTime=int(since.timestamp() * 1000),
            )
        )
        for page in pages:
            for event in page["events"]:
                record = json.loads(event["message"]).get("record", {})
                if "metrics" in record:
                    yield record["metrics"]


def run(command: list[str], *, fine: tuple[int, ...] = (0,)) -> str:
    """Return what *command* prints, run at the root; it must end with a code in *fine*."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in fine, f"{command[:6]}: {(done.stderr or done.stdout)[-1500:]}"
    return done.stdout


def until(holds: Callable[[], Any], limit_s: float, what: str, every_s: float = 2) -> Any:
    """Return what *holds* returns once that is true; fail if *limit_s* pass before."""
    deadline = time.monotonic() + limit_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(every_s)
    return found
