"""The replacement of EMR Serverless: the start of a job there sends a message here, and waits.

The state machine keeps its steps; only the one that starts the job sends what it would start it
with, and its token, to a queue. The job itself is the deployed script on the Spark of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from infra.builds import SYNC_JOB
from tests import spark_session
from tests.unit.sync.local_job import LocalJob

STARTS = ":emr-serverless:startJobRun.sync"
WAITS = ":sqs:sendMessage.waitForTaskToken"
_SETTINGS = spark_session.SETTINGS | {"spark.master": "local[2]"}
POLL_S = 1  # a message is received at once; the end of a job is this late


def over_queue(definition: str, queue: str) -> str:
    """*definition* with each start of a job as a message to *queue*."""
    found = json.loads(definition)
    for state in found["States"].values():
        if str(state.get("Resource", "")).endswith(STARTS):
            state["Resource"] = state["Resource"].removesuffix(STARTS) + WAITS
            body = {"token.$": "$$.Task.Token", "job": state["Parameters"]}
            state["Parameters"] = {"QueueUrl": queue, "MessageBody": body}
    return json.dumps(found)


@contextmanager
def running(queue: str, bucket: str, folder: Path) -> Iterator[None]:
    """Run each message in *queue* as a job, one at a time, with its files in *folder*."""
    ended = threading.Event()
    thread = threading.Thread(target=_serve, args=(queue, bucket, folder, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _serve(queue: str, bucket: str, folder: Path, ended: threading.Event) -> None:
    messages, machines = boto3.client("sqs"), boto3.client("stepfunctions")
    while not ended.is_set():
        answer = messages.receive_message(QueueUrl=queue, WaitTimeSeconds=POLL_S)
        for message in answer.get("Messages", []):
            messages.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            _answer(machines, json.loads(message["Body"]), bucket, folder)


def _answer(machines: Any, asked: dict[str, Any], bucket: str, folder: Path) -> None:
    arguments = asked["job"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
    code = LocalJob(bucket, folder / "objects", lambda told: _submit(told, folder))(arguments)
    if code == 0:
        machines.send_task_success(
            taskToken=asked["token"], output=json.dumps({"State": "SUCCESS"})
        )
        return
    cause = {"State": "FAILED", "StateDetails": f"Job failed. ExitCode: {code}. See the log."}
    machines.send_task_failure(
        taskToken=asked["token"], error="States.TaskFailed", cause=json.dumps(cause)
    )


def _submit(arguments: list[str], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{name} {value}\n" for name, value in _SETTINGS.items())
    (folder / "spark-defaults.conf").write_text(lines)
    told = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "job.log").open("ab") as log:
        return subprocess.run(
            [sys.executable, str(SYNC_JOB.entry), *arguments],
            env={**os.environ, **told},
            cwd=folder,
            stdout=log,
            stderr=log,
            check=False,
        ).returncode
