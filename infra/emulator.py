"""
MiniStack on this machine: an emulator of AWS that executes the CDK's templates without Docker.

What it gets wrong is in TESTING.md. It lives in an environment of its own, with boto3 and
without Tidings, so that the functions find Tidings in their layers or not at all; and because it
names one version of botocore, which is not ours.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from infra.paths import BUILD
from infra.processes import answers, stopped_at_exit

# boto3 is part of Lambda's Python runtime.
PACKAGES = ("ministack==1.5.33", "boto3==1.43.106")
START_S = 30  # it is up in less than one second on an idle machine
ACCOUNT, REGION = "000000000000", "us-east-1"


class EmulatorFailed(Exception):
    """MiniStack could not be installed or did not come up."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """*url* is every AWS endpoint at once; *log* is what MiniStack prints."""

    url: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What AWS clients read to end up here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def client(self, service: str) -> Any:
        """A client of boto3 for *service*."""
        made: Any = boto3.client  # its stubs want the name of the service as a literal
        return made(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


@contextmanager
def running(folder: Path) -> Iterator[Emulator]:
    """
    A fresh MiniStack that keeps everything in *folder*, stopped at the end.

    Raises:
        EmulatorFailed: see there.
    """
    program = _installed()
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("state", "s3", "tmp"):
        (folder / part).mkdir(parents=True)
    port = free_port()
    emulator = Emulator(f"http://127.0.0.1:{port}", folder / "ministack.log")
    with emulator.log.open("wb") as log:
        process = subprocess.Popen(
            [program],
            env=_environment(folder, port),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        with stopped_at_exit(process):
            _wait(emulator, process)
            yield emulator


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(folder: Path, port: int) -> dict[str, str]:
    own = {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "LAMBDA_EXECUTOR": "local",
        "STATE_DIR": str(folder / "state"),
        "S3_DATA_DIR": str(folder / "s3"),
        "TMPDIR": str(folder / "tmp"),
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | own


def _installed() -> Path:
    folder = BUILD / "emulator"
    stamp = folder / "tidings.txt"
    if not (stamp.is_file() and stamp.read_text().split() == list(PACKAGES)):
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", *PACKAGES])
        stamp.write_text("\n".join(PACKAGES))
    return folder / "bin" / "ministack"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EmulatorFailed(f"MiniStack was not installed: {last}")


def _wait(emulator: Emulator, process: subprocess.Popen[bytes]) -> None:
    def check() -> None:
        if process.poll() is not None:
            raise EmulatorFailed(f"MiniStack ended at once; see {emulator.log}")

    if not answers(f"{emulator.url}/_ministack/health", START_S, check):
        raise EmulatorFailed(f"MiniStack was not up after {START_S} s; see {emulator.log}")
