"""LocalStack on this machine, without Docker: its runtime as a process, its engine beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.emulator import free_port
from infra.processes import answers, stopped_at_exit
from tests.localstack import packages

START_S = 60  # it is up in three seconds on an idle machine
REGION = "us-east-1"


class NotUp(Exception):
    """LocalStack did not come up."""


@dataclass(frozen=True, slots=True)
class LocalStack:
    """*url* is every AWS endpoint at once."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """What AWS clients read to end up here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }


@contextmanager
def running(python: Path, folder: Path) -> Iterator[LocalStack]:
    """
    A fresh one under *python* that keeps everything in *folder*, stopped at the end.

    Raises:
        Missing: Java or Maven.
        NotUp: see there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    engine = folder / "engine.pid"
    packages.engine(folder / "files", engine)
    found = LocalStack(f"http://127.0.0.1:{free_port()}")
    with (folder / "localstack.log").open("wb") as log:
        process = subprocess.Popen(
            [str(python), "-m", "localstack.runtime.main"],
            env=_environment(folder, found.url),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            with stopped_at_exit(process):
                wait(found, START_S, lambda: _check(process, Path(log.name)))
                yield found
        finally:
            _end(engine)


def _environment(folder: Path, url: str) -> dict[str, str]:
    own = {
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(folder / "files"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": packages.plugin(folder),
        "GATEWAY_LISTEN": url.removeprefix("http://"),
        "DNS_ADDRESS": "0",  # a name server of its own would need the port of the machine's
        "DISABLE_EVENTS": "1",  # it would tell its makers of each call
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "LAMBDA_RUNTIME_EXECUTOR": packages.EXECUTOR,
        # Streams of DynamoDB Local itself; the first version copies them through Kinesis.
        "PROVIDER_OVERRIDE_DYNAMODB": "v2",
        "PROVIDER_OVERRIDE_DYNAMODBSTREAMS": "v2",
        "DYNAMODB_IN_MEMORY": "1",
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | own


def wait(found: LocalStack, limit_s: float, check: Callable[[], None]) -> None:
    """
    Return when it answers; *check* raises if it never will.

    Raises:
        NotUp: it does not for *limit_s*.
    """
    if not answers(f"{found.url}/_localstack/health", limit_s, check):
        raise NotUp(f"LocalStack was not up after {limit_s} s")


def _check(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        raise NotUp(f"LocalStack ended at once; see {log}")


def _end(pid: Path) -> None:
    """DynamoDB Local is in no process group of LocalStack's, and outlives one that was killed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIGKILL)
