"""The job of a sync on folders of this machine, where Spark cannot read S3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import boto3


@dataclass(frozen=True)
class LocalJob:
    """Runs the job with the arguments of the deployed one; *run* maps them to an exit code. Dumps
    are fetched from *bucket* into *folder* before, and the job's files are uploaded afterwards.
    """

    bucket: str
    folder: Path
    run: Callable[[list[str]], int]

    def __call__(self, arguments: list[str]) -> int:
        self._fetch("dumps/")
        there, here = f"s3://{self.bucket}/", f"file://{self.folder}/"
        code = self.run([each.replace(there, here) for each in arguments])
        self._put("plans/")
        return code

    def _fetch(self, prefix: str) -> None:
        objects = boto3.client("s3")
        found = objects.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        for key in [each["Key"] for each in found["Contents"]]:
            path = self.folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(objects.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def _put(self, prefix: str) -> None:
        objects = boto3.client("s3")
        for path in (self.folder / prefix).rglob("*"):
            if path.is_file() and not path.name.startswith("."):  # Spark's checksums
                key = str(path.relative_to(self.folder))
                objects.put_object(Bucket=self.bucket, Key=key, Body=path.read_bytes())
