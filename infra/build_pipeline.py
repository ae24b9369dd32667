"""
Build the archive of a pipeline for EMR Serverless: its file, our packages, and its libraries.

Unlike a sync job it imports compiled code, so its wheels are built for EMR's platform. The build is
reproducible, so that an unchanged pipeline continues to run after a deployment.
"""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import packing
from infra.build_job import PLATFORM, collect, packed, wheels
from infra.paths import BUILD

PACKAGES = ("tidings[flow]", "boto3")
SOURCES = (
    "core",
    "http",
    "aws",
    "client",
    "agent",
    "sync",
    "spark",
    "lake",
    "pipelines",
    "lineage",
)
# The stores of `sinks.aws`, the event bus, and the store of passwords.
SERVICES = ("events", "kinesis", "secretsmanager", "sns", "sqs", "sts")
FILE = "pipeline.py"  # in the archive, whatever its original name
_THERE = {"platform_machine": "aarch64", "sys_platform": "linux", "python_version": "3.11"}
_OURS = "tidings"


def build(name: str, file: Path, folder: Path = BUILD / "pipelines") -> Path:
    """
    Build the archive of the pipeline *name* from *file* and the current packages.

    Raises:
        LayerNotBuilt: pip found no wheel, or no network.
        FileNotFoundError: *file* does not exist.
    """
    contents, archive = folder / name / "contents", folder / name / "environment.tgz"
    installed = wheels(folder, packing.pinned(packages()), SERVICES, PLATFORM)
    collect(contents, installed, SOURCES)
    shutil.copyfile(file, contents / FILE)
    archive.write_bytes(packed(contents))
    return archive


def packages() -> list[str]:
    """Return the external packages of a pipeline with their dependencies."""
    names: set[str] = set()
    waiting = [Requirement(each) for each in PACKAGES]
    while waiting:
        package = waiting.pop()
        name = canonicalize_name(package.name)
        if name not in names:
            names.add(name)
            waiting += _needed(package)
    return sorted(names - {_OURS})


def _needed(package: Requirement) -> list[Requirement]:
    there = [{**_THERE, "extra": extra} for extra in ("", *package.extras)]
    wanted = (Requirement(each) for each in distribution(package.name).requires or [])
    return [each for each in wanted if not each.marker or any(map(each.marker.evaluate, there))]
