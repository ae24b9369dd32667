"""
Apache Iceberg's runtime for Spark: fetched once by Maven.

It is kept under the user's cache folder and shared by every checkout. EMR Serverless has its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import NoIceberg

VERSION = "1.10.1"  # that of EMR Serverless's release 8.0
ARTIFACT = f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{VERSION}"
SHA256 = "2192a0881ed0f5773b5a83a8820d2b0b2069beec203028643a1c338551007f09"  # of the jar
FETCH_S = 300  # 47 MB once

_CACHE = Path.home() / ".cache" / "tidings" / "iceberg" / VERSION
_JAR = "*.jar"


def jar(cache: Path = _CACHE) -> Path:
    """
    The runtime, fetched now if it is not there.

    Raises:
        NoIceberg: it is not in the cache, and Maven is missing, fails, or brings another file.
    """
    found = next(cache.glob(_JAR), None)
    return found or _fetched(cache)


def _fetched(cache: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoIceberg("Maven is needed once to fetch Apache Iceberg, and there is no mvn here")
    cache.parent.mkdir(parents=True, exist_ok=True)
    # Fetched beside the cache and renamed, so that half of it is never used.
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        made = Path(folder) / "jars"
        _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"], made)
        _check_sum(next(made.glob(_JAR)))
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(cache)
    return next(cache.glob(_JAR))


def _check_sum(found: Path) -> None:
    with found.open("rb") as file:
        told = hashlib.file_digest(file, "sha256").hexdigest()
    if told != SHA256:
        raise NoIceberg(
            f"Maven brought another Apache Iceberg: {found.name} has the SHA-256 {told}"
        )


def _run(command: list[str], into: Path) -> None:
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={into}"],
            cwd=into.parent,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoIceberg(f"Maven did not fetch Apache Iceberg within {FETCH_S} s") from None
    if done.returncode or next(into.glob(_JAR), None) is None:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NoIceberg(f"Maven could not fetch Apache Iceberg: {(said or ['it says nothing'])[0]}")
