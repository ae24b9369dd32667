"""Download Apache Iceberg for Spark once from Maven Central.

The jars are stored in the user's cache folder, which all checkouts share. The deployment of a stage
uploads the same jars for the job of the stage, so that the job runs the tested version.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from .warehouse import NoIceberg

VERSION = "1.11.0"  # the version in release 8.1 of EMR Serverless
CENTRAL = "https://repo1.maven.org/maven2"
SILENCE_S = 60  # the longest wait for the next bytes of a jar, which has up to 64 MB

_CACHE = Path.home() / ".cache" / "tidings" / "iceberg" / VERSION


@dataclass(frozen=True)
class Jar:
    """An Iceberg jar, with the *name* of its artifact and its SHA-256."""

    name: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{VERSION}.jar"

    @property
    def path(self) -> str:
        """Return the path of the jar in a Maven repository."""
        return f"org/apache/iceberg/{self.name}/{VERSION}/{self.file}"


RUNTIME = Jar(
    "iceberg-spark-runtime-4.1_2.13",
    "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
)
# The AWS SDK, which the runtime does not contain, but needs for the Glue catalog and files on S3.
AWS = Jar("iceberg-aws-bundle", "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f")


def jar(wanted: Jar = RUNTIME, cache: Path = _CACHE, repository: str = CENTRAL) -> Path:
    """Return the jar; download it if it is missing, and check its hash each time.

    Raises:
        NoIceberg: the file is neither in the cache nor available, or has another hash.
    """
    path = cache / wanted.file
    if not path.is_file():
        _download(f"{repository}/{wanted.path}", wanted, path)
    _check_sum(wanted, path)
    return path


def _download(url: str, wanted: Jar, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Download into the same file system and rename, so that a partial file is never used.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / wanted.file
        try:
            with urllib.request.urlopen(url, timeout=SILENCE_S) as answer, made.open("wb") as file:
                shutil.copyfileobj(answer, file)
        # OSError includes errors of HTTP. A truncated answer is found by its hash below.
        except OSError as error:
            raise NoIceberg(
                f"{url} cannot be downloaded ({error}); if this machine has no access to it, "
                f"store the file as {target}"
            ) from None
        _check_sum(wanted, made)
        made.replace(target)


def _check_sum(wanted: Jar, path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wanted.sha256:
        raise NoIceberg(
            f"{path}: the SHA-256 must be {wanted.sha256}, is {digest}; "
            "remove the file, so that it is downloaded again"
        )
