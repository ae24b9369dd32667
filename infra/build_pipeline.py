"""
Builds what EMR Serverless needs of a pipeline: its file, our packages, and its stores' libraries.

Other than the job of a sync this one loads compiled code, so its wheels are those for the machines
of EMR. The same contents make the same bytes, so a pipeline that did not change goes on running.
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
# The stores of `sinks.aws`, the bus of events, and where passwords are.
SERVICES = ("events", "kinesis", "secretsmanager", "sns", "sqs", "sts")
FILE = "pipeline.py"  # in the archive, whatever it was called
_THERE = {"platform_machine": "aarch64", "sys_platform": "linux", "python_version": "3.11"}
_OURS = "tidings"


def build(name: str, file: Path, folder: Path = BUILD / "pipelines") -> Path:
    """
    The archive of the pipeline *name*, made of *file* and what is here.

    Raises:
        LayerNotBuilt: pip found no wheel, or no network.
        FileNotFoundError: there is no such file.
    """
    contents, archive = folder / name / "contents", folder / name / "environment.tgz"
    installed = wheels(folder, packing.pinned(packages()), SERVICES, PLATFORM)
    collect(contents, installed, SOURCES)
    shutil.copyfile(file, contents / FILE)
    archive.write_bytes(packed(contents))
    return archive


def packages() -> list[str]:
    """What a pipeline imports besides us, and what that needs."""
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
