"""Build the archives for EMR Serverless: of the sync job, of the lake job, and of pipelines.

Spark unpacks an archive (`spark.archives`) in the working folder of each process of a job, and
PYTHONPATH contains that folder. EMR provides Python and PySpark. botocore contains the descriptions
of some 440 services. An archive contains only the descriptions of the services that its job uses.
The build is reproducible, so that unchanged archives are not uploaded again.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import BUILD, LAYERS, PACKAGE, packing
from infra.build_layers import LayerNotBuilt
from infra.packing import NotInstalled

# boto3 with all its dependencies (a test compares this with the metadata).
PACKAGES = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
SOURCES = ("core", "http", "assembly", "aws", "sync", "spark", "lake", "pipelines", "lineage")
SERVICES = ("dynamodb", "s3", "sts")
# The lake job needs pyarrow, because its Spark data source reads a feed as Arrow batches.
LAKE_PACKAGES = (*PACKAGES, "pyarrow")
LAKE_SOURCES = (*SOURCES, "client")
LAKE_SERVICES = (*SERVICES, "glue")
# EMR's Spark runs on Graviton with Amazon Linux 2023 (glibc 2.34) and Python 3.11.
PLATFORM = (
    *("--platform", "manylinux_2_28_aarch64"),
    *("--platform", "manylinux2014_aarch64"),
    *("--platform", "any"),
    *("--implementation", "cp", "--python-version", "3.11"),
)
ARCHIVE = BUILD / "job" / "environment.tgz"
ENTRY = LAYERS / "emr" / "sync_entry.py"
LAKE_ENTRY = LAYERS / "emr" / "tables_entry.py"
FLOW_ENTRY = LAYERS / "emr" / "pipeline_entry.py"

_LEVEL = 4  # compresses the lake job in 4 s to 55 MB; level 9 takes 20 s, for 53 MB
_LEFT_OUT = ("__pycache__", "*.pyc", "*.dist-info", "bin", "examples")


def build(folder: Path = BUILD / "job") -> Path:
    """Build the archive of the sync job. The wheels are installed again only if their list changed.

    Raises:
        LayerNotBuilt: pip found no wheel, or the network is unavailable.
    """
    contents, archive = folder / "contents", folder / ARCHIVE.name
    with packing.turn(folder):
        collect(contents, wheels(folder, requirements(), SERVICES), SOURCES)
        packing.replace(archive, pack_archive(contents))
    return archive


def build_lake(folder: Path = BUILD / "lake_job") -> Path:
    """Build the archive of the lake job.

    Raises:
        LayerNotBuilt: see `build`.
    """
    contents, archive = folder / "contents", folder / ARCHIVE.name
    with packing.turn(folder):
        wanted = wheels(folder, packing.pin_versions(LAKE_PACKAGES), LAKE_SERVICES, PLATFORM)
        collect(contents, wanted, LAKE_SOURCES)
        packing.replace(archive, pack_archive(contents))
    return archive


def collect(contents: Path, wheels: Path, packages: Iterable[str]) -> None:
    """Replace *contents* with the installed *wheels* and the folders *packages* of `tidings`."""
    ignore = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.rmtree(contents, ignore_errors=True)
    shutil.copytree(wheels, contents, ignore=ignore)
    for name in packages:
        shutil.copytree(PACKAGE / name, contents / "tidings" / name, ignore=ignore)
    shutil.copyfile(PACKAGE / "__init__.py", contents / "tidings" / "__init__.py")


def requirements() -> list[str]:
    return packing.pin_versions(PACKAGES)


def wheels(
    folder: Path, wanted: Sequence[str], services: Sequence[str], platform: Sequence[str] = ()
) -> Path:
    """Return the folder of the wheels *wanted*, with botocore's descriptions of *services* only."""
    target, stamp = folder / "wheels", folder / "wheels.txt"
    made_of = "\n".join((*wanted, *platform, *services)) + "\n"
    if not (stamp.is_file() and stamp.read_text() == made_of and target.is_dir()):
        install(target, wanted, platform)
        prune(target / "botocore" / "data", services)
        stamp.write_text(made_of)
    return target


def install(target: Path, wanted: Iterable[str], platform: Sequence[str] = ()) -> None:
    """Install the wheels *wanted* in *target*; see `packing.install`.

    Raises:
        LayerNotBuilt: the lock lacks a package, a hash differs, or the network is unavailable.
    """
    try:
        packing.install(target, wanted, platform)
    except NotInstalled as problem:
        raise LayerNotBuilt("job", str(problem)) from None


def prune(descriptions: Path, services: Sequence[str]) -> None:
    """Delete the service descriptions of botocore except the descriptions of *services*."""
    for each in descriptions.iterdir():
        if each.is_dir() and each.name not in services:
            shutil.rmtree(each)


def pack_archive(contents: Path) -> bytes:
    """Return a gzipped tar of *contents* without times and owners, which differ between builds."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for path in sorted(contents.rglob("*")):
            tar.add(path, path.relative_to(contents), recursive=False, filter=_plain)
    return packed.getvalue()


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return *entry* without its time and owner."""
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry = without_owner(entry)
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


PIPELINE_PACKAGES = ("tidings[flow]", "boto3")
PIPELINE_SOURCES = (
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
# The services that pipelines use: those of the stores in `tidings.pipelines.aws`, EventBridge for
# the events about a pipeline, and Secrets Manager for passwords.
PIPELINE_SERVICES = ("events", "kinesis", "secretsmanager", "sns", "sqs", "sts")
PIPELINE_FILE = "pipeline.py"  # the name that every pipeline's file has in its archive
_THERE = {"platform_machine": "aarch64", "sys_platform": "linux", "python_version": "3.11"}
_OURS = "tidings"


def build_pipeline(name: str, file: Path, folder: Path = BUILD / "pipelines") -> Path:
    """Build the archive of the pipeline *name*: *file*, the packages of Tidings and dependencies.

    Raises:
        LayerNotBuilt: pip found no wheel, or the network is unavailable.
        FileNotFoundError: *file* does not exist.
    """
    contents, archive = folder / name / "contents", folder / name / "environment.tgz"
    installed = wheels(
        folder, packing.pin_versions(pipeline_packages()), PIPELINE_SERVICES, PLATFORM
    )
    collect(contents, installed, PIPELINE_SOURCES)
    shutil.copyfile(file, contents / PIPELINE_FILE)
    archive.write_bytes(pack_archive(contents))
    return archive


def pipeline_packages() -> list[str]:
    """Return the external packages that a pipeline needs, with their dependencies."""
    names: set[str] = set()
    waiting = [Requirement(each) for each in PIPELINE_PACKAGES]
    while waiting:
        package = waiting.pop()
        name = canonicalize_name(package.name)
        if name not in names:
            names.add(name)
            waiting += _needs(package)
    return sorted(names - {_OURS})


def _needs(package: Requirement) -> list[Requirement]:
    there = [{**_THERE, "extra": extra} for extra in ("", *package.extras)]
    wanted = (Requirement(each) for each in distribution(package.name).requires or [])
    return [each for each in wanted if not each.marker or any(map(each.marker.evaluate, there))]
