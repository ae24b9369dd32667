"""What the jobs of a stage import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from infra import build_job


@pytest.mark.parametrize("job", ["tidings.sync.emr", "tidings.lake.emr"])
def test_a_job_imports_what_is_shipped_with_it(job: str) -> None:
    """On EMR Serverless there are PySpark, boto3, what is in the archive, and nothing else."""
    absent = ["click", "rich", "httpx", "websockets", "aws_lambda_powertools", "tidings.client"]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import {job}"
    paths = ":".join(str(path) for path in build_job.SOURCES)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
