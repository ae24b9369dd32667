"""
Fetch Apache Iceberg for Spark once with Maven: the same files on a laptop and on a stage.

The jars are stored in the user's cache folder and shared by all checkouts. A stage uploads them for
its job, so that it runs the tested version.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import NoIceberg

VERSION = "1.11.0"  # the version in EMR Serverless's release 8.1
FETCH_S = 300  # up to 63 MB, once

_CACHE = Path.home() / ".cache" / "tidings" / "iceberg" / VERSION


@dataclass(frozen=True)
class Jar:
    """An Iceberg jar: the *name* of its artifact, and its SHA-256."""

    name: str
    sha256: str

    @property
    def artifact(self) -> str:
        return f"org.apache.iceberg:{self.name}:{VERSION}"

    @property
    def file(self) -> str:
        return f"{self.name}-{VERSION}.jar"


RUNTIME = Jar(
    "iceberg-spark-runtime-4.1_2.13",
    "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
)
# The AWS SDK for the Glue catalog and for files on S3; the runtime has only the code that calls it.
AWS = Jar(
    "iceberg-aws-bundle",
    "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
)


def jar(wanted: Jar = RUNTIME, cache: Path = _CACHE) -> Path:
    """
    Return the jar; fetch it if it is missing, and check its hash each time.

    Raises:
        NoIceberg: the file is not in the cache, and Maven is missing or fails; or the file has
            another hash.
    """
    path = cache / wanted.file
    if not path.is_file():
        _fetch(wanted, path)
    _check_sum(wanted, path)
    return path


def _fetch(wanted: Jar, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoIceberg("Maven is needed once to fetch Apache Iceberg, and there is no mvn here")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Fetch into the same file system and rename, so that a partial file is never used.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / wanted.file
        _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={wanted.artifact}"], made)
        _check_sum(wanted, made)
        made.replace(target)


def _check_sum(wanted: Jar, path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wanted.sha256:
        raise NoIceberg(
            f"{path}: the SHA-256 must be {wanted.sha256}, is {digest}; "
            "remove the file, and it is fetched again"
        )


def _run(command: list[str], made: Path) -> None:
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={made.parent}"],
            cwd=made.parent,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoIceberg(f"Maven did not fetch Apache Iceberg within {FETCH_S} s") from None
    if done.returncode or not made.is_file():
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NoIceberg(
            f"Maven could not fetch Apache Iceberg: {(errors or ['it says nothing'])[0]}"
        )
