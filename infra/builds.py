"""Build the code that is deployed: Lambda layers, and the archives of jobs on EMR Serverless.

`layers/layers.toml` declares the layers, `SYNC_JOB`, `LAKE_JOB` and `PIPELINE_JOB` the archives.
Wheels are those for the platform that runs them, in the versions that are installed in this
environment, so that the tested versions are deployed. The lock (`requirements.lock`, written by
`make lock`) contains the hashes of every file of each package; a wheel with another hash is not
installed. Wheels are installed again only if the result would change. Concurrent builds, such as
those of parallel tests, take turns.

botocore is one of the wheels, because Lambda's runtime contains another version. Its descriptions
of some 440 services are reduced to those that are used. Modules of layers are compiled, because
every new instance would compile them again: a layer is read-only on Lambda. Spark unpacks the
archive of a job (`spark.archives`) in the working folder of each process, and PYTHONPATH contains
that folder; EMR provides Python and PySpark. The bytes of an archive depend only on the names,
contents and modes of its files, and on the given time, so that unchanged archives are not uploaded
again.
"""

from __future__ import annotations

import ast
import fcntl
import filecmp
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import distribution, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import BUILD, FUNCTIONS, PACKAGE, ROOT, VENDOR
from infra import LAYERS as DECLARED

LOCK = ROOT / "requirements.lock"
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")
_COMPILED = ("__pycache__", "*.pyc")


class NotBuilt(Exception):
    """Wheels cannot be installed.

    The message is the last line of pip's errors, or says that the lock does not have the version.
    """


@cache
def lock(path: Path = LOCK) -> Mapping[str, str]:
    """Return the entries of the lock, which contain the hashes, by `name==version`.

    The names are in lower case, with hyphens.
    """
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    pins = {_PINNED.match(entry): entry for entry in entries}
    return {encode_name(pin["name"], pin["version"]): entry for pin, entry in pins.items() if pin}


def encode_name(name: str, release: str) -> str:
    return f"{canonicalize_name(name)}=={release}"


def pin_versions(packages: Iterable[str]) -> list[str]:
    """Return a requirement `name==version` for each of *packages*, with the installed version."""
    return [f"{package}=={version(package)}" for package in packages]


def install(
    target: Path,
    packages: Iterable[str],
    services: Sequence[str],
    platform: Sequence[str] = (),
    *,
    stamp: Path,
    compiler: str = "",
) -> None:
    """Make *target* contain the wheels of *packages*, unless *stamp* lists the same contents.

    *platform* contains the options of pip that select another platform, *services* the services
    that botocore keeps descriptions of, and *compiler* the Python that compiles the modules; "" for
    none.

    Raises:
        NotBuilt: the lock lacks a package, a hash differs, a wheel is missing, or there is no
            network.
    """
    wanted = pin_versions(packages)
    contents = [*wanted, *platform, *(f"botocore for {each}" for each in services)]
    listed = "\n".join([*contents, f"compiled for {PYTHON}" if compiler else "not compiled"]) + "\n"
    if stamp.is_file() and stamp.read_text() == listed and target.is_dir():
        return
    pip_install(target, wanted, platform)
    shutil.rmtree(target / "bin", ignore_errors=True)
    for described in (target / "botocore" / "data").glob("*/"):
        if described.name not in services:
            shutil.rmtree(described)
    if compiler:
        compile_all(target, compiler)
    stamp.write_text(listed)


def pip_install(target: Path, wanted: Iterable[str], platform: Sequence[str] = ()) -> None:
    """Install the wheels *wanted* in *target*, which is emptied first; see `install`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(_entry(each) for each in wanted) + "\n")
        command += ["--target", str(target), *platform, "-r", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotBuilt(f"the wheels of {target} were not installed: {last}")


def _entry(wanted: str) -> str:
    entry = lock().get(encode_name(*wanted.split("==")))
    if entry is None:
        raise NotBuilt(f"{wanted} is not in {LOCK.name}: run `make setup`, or `make lock`")
    return entry


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold the build lock of *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases the lock when this process ends
        yield


def replace(file: Path, content: bytes) -> None:
    """Write *file* atomically, so that a reader gets the complete old or new content."""
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.write_bytes(content)
    made.replace(file)


def copy_packages(packages: Sequence[str], target: Path, *, with_init: bool) -> None:
    """Make *target* contain exactly the folders *packages* of `tidings`.

    Unchanged files stay in place, because another process may be reading them.
    """
    wanted = {path for name in packages for path in _files(PACKAGE / name, _COMPILED)}
    if with_init:
        wanted.add(PACKAGE / "__init__.py")
    copies = {target / "tidings" / path.relative_to(PACKAGE): path for path in wanted}
    for copy, path in copies.items():
        if not (copy.is_file() and filecmp.cmp(copy, path, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            replace(copy, path.read_bytes())
    for path in (target / "tidings").rglob("*"):
        if path.is_file() and path not in copies:
            path.unlink()


def _files(folder: Path, left_out: tuple[str, ...]) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(fnmatch(part, out) for part in parts for out in left_out):
            yield path


# Lambda layers.

PYTHON = "3.13"  # the Python version of the functions
PLACE = "/opt/python"  # the path of the modules on Lambda, which tracebacks show
_CODE = (PACKAGE / "aws", FUNCTIONS)
_FOR_LAMBDA = ("--platform", "manylinux2014_aarch64", "--python-version", PYTHON)
_CONTENTS = tomllib.loads((DECLARED / "layers.toml").read_text(encoding="utf-8"))
LAYERS = {name: each["wheels"] for name, each in _CONTENTS.items() if "wheels" in each}
OURS = {name: each["packages"] for name, each in _CONTENTS.items() if "packages" in each}
BUNDLE = BUILD / "bundle" / "code"  # the folder with all code, for stages with `hotswap`


class UnknownClient(Exception):
    def __init__(self, path: Path, line: int) -> None:
        super().__init__(
            f"{path}:{line}: the service of create_client must be a literal, because only the"
            " services found in the code are deployed"
        )


def services() -> tuple[str, ...]:
    """Return the services of all clients that the functions' code creates.

    Raises:
        UnknownClient: the name of a service is not a literal.
    """
    paths = (path for folder in _CODE for path in sorted(folder.rglob("*.py")))
    return tuple(sorted({name for path in paths for name in clients(path)}))


def clients(path: Path) -> Iterator[str]:
    """Yield the services for which the module at *path* calls `create_client`; see `services`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="create_client"), args=arguments):
                pass
            case _:
                continue
        match arguments:
            case [ast.Constant(value=str(service)), *_]:
                yield service
            case _:
                raise UnknownClient(path, node.lineno)


def compiler() -> str:
    """Return the path of a Python of the functions' version; "" if it is not installed."""
    script = (
        f"import sys; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{PYTHON}' else '')"
    )
    for program in filter(None, (sys.executable, shutil.which(f"python{PYTHON}"))):
        done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
        if path := done.stdout.strip():
            return path
    return ""


def compile_all(target: Path, program: str) -> None:
    """Compile *target* with *program*. The result does not depend on the times of the files."""
    command = [program, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(target), "-p", PLACE, str(target)], check=True)


def warn_if_uncompiled() -> None:
    """Warn on stderr if layers cannot be compiled here; they are deployed all the same."""
    if not compiler():
        sys.stderr.write(
            f"warning: the layers are not compiled, because python{PYTHON} was not found; each"
            " function takes about 0.4 s longer to start\n"
        )


def build_layer(name: str, *, vendor: Path = VENDOR) -> Path:
    """Return the folder of the layer *name* of wheels, and build it if it is out of date.

    Raises:
        NotBuilt: see `install`.
    """
    used = services() if "botocore" in LAYERS[name] else ()
    stamp = vendor / f"{name}.txt"
    with turn(vendor):
        install(
            vendor / name / "python",
            *(LAYERS[name], used, _FOR_LAMBDA),
            stamp=stamp,
            compiler=compiler(),
        )
    return vendor / name


def build_ours(name: str, folder: Path = BUILD / "layers") -> Path:
    """Build the layer *name* of our own packages and return its folder."""
    with turn(folder):
        copy_packages(OURS[name], folder / name / "python", with_init=name == "core")
    return folder / name


def bundle(target: Path = BUNDLE) -> Path:
    """Build one folder with the code of all functions and our packages, and return the folder."""
    with turn(target.parent):
        names = [package for packages in OURS.values() for package in packages]
        copy_packages(names, target, with_init=True)
        shutil.rmtree(target / FUNCTIONS.name, ignore_errors=True)
        ignored = shutil.ignore_patterns(*_COMPILED)
        shutil.copytree(FUNCTIONS, target / FUNCTIONS.name, ignore=ignored)
    return target


# Jobs on EMR Serverless.

# boto3 with all its dependencies (a test compares this with the metadata).
SDK = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
# EMR's Spark runs on Graviton with Amazon Linux 2023 (glibc 2.34) and Python 3.11.
PLATFORM = (
    *("--platform", "manylinux_2_28_aarch64"),
    *("--platform", "manylinux2014_aarch64"),
    *("--platform", "any"),
    *("--implementation", "cp", "--python-version", "3.11"),
)
PIPELINE_PACKAGES = ("tidings[flow]", "boto3")
PIPELINE_FILE = "pipeline.py"  # the name that every pipeline's file has in its archive
_SPARK = ("core", "http", "aws", "sync", "spark", "lake", "pipelines", "lineage")
_STORES = ("dynamodb", "s3", "sts")
_LEVEL = 4  # compresses the lake job in 4 s to 55 MB; level 9 takes 20 s, for 53 MB
_LEFT_OUT = (*_COMPILED, "*.dist-info", "bin", "examples")
_THERE = {"platform_machine": "aarch64", "sys_platform": "linux", "python_version": "3.11"}
_OURS = "tidings"


class Job(NamedTuple):
    """The contents of an archive: packages of Tidings, and external *packages* with dependencies.

    *packages* without an entry are those of `pipeline_packages`, *services* are those that botocore
    keeps descriptions of, *platform* contains the options of pip, and *entry* is the program.
    """

    name: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    services: tuple[str, ...]
    platform: tuple[str, ...]
    entry: Path


_EMR = DECLARED / "emr"
SYNC_JOB = Job("sync", (*_SPARK, "assembly"), SDK, _STORES, (), _EMR / "sync_entry.py")
# The lake job needs pyarrow, because its Spark data source reads a feed as Arrow batches.
LAKE_JOB = Job(
    "lake",
    (*_SPARK, "assembly", "client"),
    (*SDK, "pyarrow"),
    (*_STORES, "glue"),
    PLATFORM,
    _EMR / "tables_entry.py",
)
# The services are those of the stores in `tidings.pipelines.aws`, EventBridge for the events about
# a pipeline, and Secrets Manager for passwords.
PIPELINE_JOB = Job(
    "pipeline",
    (*_SPARK, "client", "agent"),
    (),
    ("events", "kinesis", "secretsmanager", "sns", "sqs", "sts"),
    PLATFORM,
    _EMR / "pipeline_entry.py",
)


def build_job(job: Job, name: str = "", file: Path | None = None) -> Path:
    """Return the archive of *job*; that of a pipeline has its *name* and contains its *file*.

    Raises:
        NotBuilt: see `install`.
        FileNotFoundError: *file* does not exist.
    """
    shared = BUILD / "jobs" / job.name
    folder, wheels = shared / (name or "archive"), shared / "wheels"
    archive = folder / "environment.tgz"
    with turn(shared):
        packages = job.packages or pipeline_packages()
        install(wheels, packages, job.services, job.platform, stamp=shared / "wheels.txt")
        collect(folder / "contents", wheels, job.sources)
        if file:
            shutil.copyfile(file, folder / "contents" / PIPELINE_FILE)
        replace(archive, pack_archive(folder / "contents"))
    return archive


def collect(contents: Path, wheels: Path, packages: Sequence[str]) -> None:
    """Replace *contents* with the installed *wheels* and the folders *packages* of `tidings`."""
    shutil.rmtree(contents, ignore_errors=True)
    shutil.copytree(wheels, contents, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    copy_packages(packages, contents, with_init=True)


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


# Archives.

_FILE, _PROGRAM = 0o100644, 0o100755
_UNIX = 3
_EARLIEST_S = 315_532_800  # 1980: the earliest time in a zip


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


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def zip_folder(folder: Path, time_s: int, below: str = "", *, compiled: bool = False) -> bytes:
    """Return a zip of the files of *folder*, sorted by name.

    Each entry has the time *time_s* and a path that begins with *below*. Python's compiled files
    are included only if *compiled*.
    """
    left_out = ("bin",) if compiled else ("bin", *_COMPILED)
    when = time.gmtime(max(time_s, _EARLIEST_S))[:6]
    named = {path.relative_to(folder).as_posix(): path for path in _files(folder, left_out)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(named.items()):
            entry = zipfile.ZipInfo(f"{below}{name}", when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = _UNIX
            entry.external_attr = (_PROGRAM if path.stat().st_mode & 0o100 else _FILE) << 16
            archive.writestr(entry, path.read_bytes())
    return packed.getvalue()


def main() -> None:
    warn_if_uncompiled()
    try:
        for name in LAYERS:
            build_layer(name)
    except NotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
