"""A stage on moto, and jobs that leave the plan of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.parts import sync_states
from tests.contract.stores import create
from tests.functions.cloud import restart
from tests.sync_machine.emr import runs_jobs
from tests.sync_machine.jobs import Jobs
from tests.sync_machine.machine import ENVIRONMENT, Machine, machine
from tidings.aws import clients
from tidings.aws.config.deployment import TABLES


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    jobs = Jobs()
    jobs.started = runs_jobs(monkeypatch, jobs)
    return jobs


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> Iterator[Machine]:
    """Empty tables; exports are waited for by the second."""
    monkeypatch.setattr(sync_states, "EXPORT_WAIT_S", 1)
    for name, value in {**ENVIRONMENT, **{each.setting: each.name for each in TABLES}}.items():
        monkeypatch.setenv(name, value)
    restart()
    with machine("state") as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", made.api.url)
        for table in TABLES:
            create(clients.dynamodb(), table)
        yield made
    restart()
