"""
LocalStack as its makers give it away: a container, for who has Docker and a token of theirs.

Not run by us, who have neither: the command is that of LocalStack's documentation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.localstack.host import LocalStack, NotUp, wait

TOKEN = "LOCALSTACK_AUTH_TOKEN"
IMAGE = "localstack/localstack-pro"
START_S = 300  # the image has 1.5 GB, and may have to be fetched
_NAME = "tidings-localstack"


def possible() -> bool:
    """Whether there are a token and a Docker engine that answers."""
    docker = shutil.which("docker")
    if docker is None or TOKEN not in os.environ:
        return False
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def running() -> Iterator[LocalStack]:
    """
    A fresh one, removed at the end.

    Raises:
        NotUp: Docker could not start it, or it does not answer.
    """
    done = subprocess.run(_command(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotUp(f"the container did not start: {done.stderr.strip()}")
    found = LocalStack("http://127.0.0.1:4566")
    try:
        wait(found, START_S, lambda: None)
        yield found
    finally:
        subprocess.run(["docker", "rm", "--force", _NAME], capture_output=True, check=False)


def _command() -> list[str]:
    ports = ["--publish", "127.0.0.1:4566:4566", "--publish", "127.0.0.1:4510-4559:4510-4559"]
    # By its name, so that the list of processes does not show what it is.
    told = ["--env", TOKEN, "--env", "LAMBDA_IGNORE_ARCHITECTURE=1"]
    engine = ["--volume", "/var/run/docker.sock:/var/run/docker.sock"]
    return ["docker", "run", "--rm", "--detach", "--name", _NAME, *ports, *told, *engine, IMAGE]
