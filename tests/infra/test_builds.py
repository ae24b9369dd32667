"""Layers, archives of jobs and the lock are complete when deployed, with nothing else in them."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import distribution, requires, version
from pathlib import Path

import aws_cdk as cdk
import pytest

from infra import FUNCTIONS, ROOT, builds, cdk_cli, settings
from infra.builds import LAKE_JOB, PIPELINE_JOB, SYNC_JOB, Job, NotBuilt
from infra.parts.function import Layers

LAYER_BYTES_MAX = 40_000_000  # Lambda takes 250 MB of all layers; with every service it would be 60
_CLIENTS = """
import sys
layer, *services = sys.argv[1:]
sys.path.append(layer)
import botocore
from botocore.session import Session
print(botocore.__file__, botocore.__version__)
for name in services:
    client = Session().create_client(name, region_name="eu-west-1")
    print(client.meta.service_model.service_name)
"""


def _nothing_but_data(target: Path, wanted: object, platform: object) -> None:
    for service in ("s3", "sqs"):
        (target / "botocore" / "data" / service).mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize("name", builds.LAYERS)
def test_layer_holds_what_its_packages_need(name: str) -> None:
    """The list is closed under dependencies, optional extras apart."""
    listed = set(builds.LAYERS[name])
    needed = {
        re.split(r"[^A-Za-z0-9._-]", line)[0].replace("_", "-").lower()
        for package in listed
        for line in requires(package) or []
        if "extra ==" not in line and 'python_version < "3.11"' not in line
    }
    elsewhere = set(builds.LAYERS["functions"]) if name != "functions" else set()

    assert {each for each in needed if "platform_system" not in each} <= (
        listed | elsewhere | {"colorama", "typing-extensions"}
    )


@pytest.mark.node
def test_every_client_of_the_code_is_made_of_the_layer() -> None:
    """By the botocore that the tests run, which the runtime may not have: nothing of this
    environment is there, and nothing that the layer lacks is asked for.
    """
    layer = builds.build_layer("functions") / "python"
    made = subprocess.run(
        [sys.executable, "-ISB", "-c", _CLIENTS, str(layer), *builds.services()],
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [
        f"{layer}/botocore/__init__.py",
        version("botocore"),
        *builds.services(),
    ]
    described = {each.name for each in (layer / "botocore" / "data").iterdir() if each.is_dir()}
    assert described == {*builds.services()} >= {"dynamodb", "lambda", "s3"}
    assert sum(each.stat().st_size for each in layer.rglob("*") if each.is_file()) < LAYER_BYTES_MAX


def test_a_client_whose_service_cannot_be_known_is_refused(tmp_path: Path) -> None:
    """It would be made of nothing, in production first."""
    module = tmp_path / "module.py"
    module.write_text("session.create_client('s3')\nsession.create_client(name)\n")

    with pytest.raises(builds.UnknownClient, match=r"module\.py:2: the service of"):
        list(builds.clients(module))


def test_a_layer_is_built_again_when_the_code_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the layer names the compiled files and the services."""
    monkeypatch.setattr(builds, "pip_install", _nothing_but_data)
    builds.build_layer("functions", vendor=tmp_path)
    stamp = (tmp_path / "functions.txt").read_text().splitlines()
    assert {f"botocore for {service}" for service in builds.services()} < {*stamp}

    monkeypatch.setattr(builds, "services", lambda: ("sqs",))
    builds.build_layer("functions", vendor=tmp_path)
    data = tmp_path / "functions" / "python" / "botocore" / "data"
    assert [each.name for each in data.iterdir()] == ["sqs"]


def test_what_is_compiled_is_taken_as_it_is(tmp_path: Path) -> None:
    """Without a look at its source's time, which an archive changes; in every Python alike."""
    (tmp_path / "module.py").write_text("def where(): return where.__code__.co_filename\n")
    builds.compile_all(tmp_path, sys.executable)
    (compiled,) = tmp_path.rglob("*.pyc")
    first = compiled.read_bytes()
    assert first[4:8] == b"\x01\0\0\0"  # by hash, unchecked: PEP 552
    assert b"/opt/python/module.py" in first and str(tmp_path).encode() not in first

    os.utime(tmp_path / "module.py", (0, 0))
    compiled.unlink()
    builds.compile_all(tmp_path, sys.executable)
    assert compiled.read_bytes() == first


def test_each_layer_contains_its_packages_alone(tmp_path: Path) -> None:
    """Files that were deleted since the last build are deleted from the layer."""
    stale = tmp_path / "core" / "python" / "tidings" / "core" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    layers = {name: builds.build_ours(name, tmp_path) for name in builds.OURS}
    packages = {
        name: {path.name for path in (folder / "python" / "tidings").iterdir()}
        for name, folder in layers.items()
    }

    assert packages == {"core": {"__init__.py", "core", "http", "assembly"}, "aws": {"aws"}}
    assert not stale.exists()
    assert not list(tmp_path.rglob("*.pyc"))


def test_the_layers_of_our_code_import_without_the_rest(tmp_path: Path) -> None:
    """Import every module from the built layers and third-party packages alone."""
    paths = [str(builds.build_ours(name, tmp_path) / "python") for name in builds.OURS]
    merged = tmp_path / "opt"
    for path in paths:
        shutil.copytree(path, merged, dirs_exist_ok=True)
    script = (
        "import pkgutil, importlib, sys\n"
        "sys.path = [p for p in sys.path if not p.endswith('/src')]\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import tidings\n"
        "for each in pkgutil.walk_packages(tidings.__path__, 'tidings.'):\n"
        "    importlib.import_module(each.name)\n"
        "print(tidings.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(merged)],
        env={**os.environ, "AWS_DEFAULT_REGION": "eu-west-1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(merged / "tidings" / "__init__.py")


def test_every_function_folder_is_deployed() -> None:
    """A folder that no function of the blueprint names is a mistake."""
    from tidings.aws.config import deployment

    folders = {path.parent.name for path in FUNCTIONS.glob("*/handler.py")}

    deployed = (*deployment.FUNCTIONS, deployment.CAPTURE)
    assert {function.folder for function in deployed} == folders


def test_missing_node_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback out of the CDK's engine."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(cdk_cli.NodeMissing, match=r"^Node\.js 22 or newer is needed .* PATH\.$"):
        cdk_cli.require_node()


@pytest.mark.node
@pytest.mark.parametrize(("tokens", "built"), [(False, "functions"), (True, "tokens")])
def test_only_a_stage_that_takes_tokens_has_the_library_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokens: bool, built: str
) -> None:
    """Instead of the other layer; X-Ray's is an additional one, if it is requested."""
    wanted: list[str] = []

    def build(name: str) -> Path:
        wanted.append(name)
        return tmp_path

    monkeypatch.setattr(builds, "build_layer", build)
    (dev,) = settings.choose_stages("dev")
    Layers(cdk.Stack(), "Layers", dev, tokens=tokens)
    assert wanted == [built]
    Layers(cdk.Stack(), "Layers", replace(dev, xray=True), tokens=tokens)
    assert wanted == [built, "tracing", built]
    assert {*builds.LAYERS["functions"]} < {*builds.LAYERS["tokens"]}


# The lake job is built for another machine than this one: compiled parts are taken from here.
@pytest.mark.parametrize(("job", "ours"), [(SYNC_JOB, ()), (LAKE_JOB, ("pyarrow",))])
def test_the_archive_holds_all_that_a_job_imports(
    job: Job, ours: Sequence[str], tmp_path: Path
) -> None:
    """With PySpark and nothing else installed, as on EMR; botocore without other services."""
    environment = tmp_path / "environment"
    with tarfile.open(builds.build_job(job)) as archive:
        archive.extractall(environment, filter="data")
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in ("pyspark", "py4j", *ours):
        origin = importlib.util.find_spec(name)
        assert origin is not None and origin.origin is not None
        (beside / name).symlink_to(Path(origin.origin).parent)

    done = subprocess.run(
        [sys.executable, "-S", str(job.entry), "--help"],
        env={"PYTHONPATH": f"{beside}:{environment}", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "--state-table" in done.stdout
    assert all((environment / name).is_dir() for name in ours)
    found = {each.name for each in (environment / "botocore/data").glob("*/")}
    assert found == set(job.services)


def test_the_archive_is_closed_under_dependencies() -> None:
    """What boto3 needs, and what that needs."""
    for package in builds.SDK:
        for needed in requires(package) or []:
            if "extra" not in needed:
                name = needed.split(">")[0].split("<")[0].split("!")[0].split(" ")[0]
                assert name in builds.SDK


def test_the_packages_are_all_that_a_pipeline_imports(tmp_path: Path) -> None:
    """With those and ours alone every store loads, and the pipeline file is found."""
    site = next(Path(each) for each in sys.path if each.endswith("site-packages"))
    beside = tmp_path / "beside"
    beside.mkdir()
    for source in imported(site):
        (beside / source.name).symlink_to(source)
    contents = tmp_path / "contents"
    builds.collect(contents, beside, PIPELINE_JOB.sources)
    (contents / builds.PIPELINE_FILE).write_text(PIPELINE)

    done = subprocess.run(
        [sys.executable, "-S", str(PIPELINE_JOB.entry), builds.PIPELINE_FILE],
        env={"PYTHONPATH": str(contents), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1  # no feed has that address, and the error says so
    assert "Traceback" not in done.stderr
    assert {json.loads(line)["kind"] for line in done.stdout.splitlines()} >= {"boot", "error"}


PIPELINE = """
from tidings.pipelines.aws import EventBus
from tidings.pipelines import Ndjson, Parquet, Pipeline, Postgres, Search, Source

stores = (Parquet, Postgres, Search)
pipeline = Pipeline("copy", Source("http://127.0.0.1:9"))
pipeline.save("lines", Ndjson("lines"))
"""


def imported(site: Path) -> set[Path]:
    """Return the additional files that the distributions of the packages install."""
    tops = {
        (site / file.parts[0])
        for package in builds.pipeline_packages()
        for file in distribution(package).files or []
        if file.parts[0] != ".." and "dist-info" not in file.parts[0]
    }
    return {each for each in tops if each.exists()}


def test_it_is_packed_for_the_machines_of_emr() -> None:
    """With the packages the tests run with, and none of ours among them."""
    packages = set(builds.pipeline_packages())

    assert {"pyarrow", "psycopg", "opensearch-py", "boto3", "httpx"} <= packages
    assert not {"tidings", "pyspark", "aws-cdk-lib", "pytest"} & packages
    assert "manylinux_2_28_aarch64" in builds.PLATFORM
    assert PIPELINE_JOB.entry.is_file()


def test_an_archive_depends_on_its_files_alone(tmp_path: Path) -> None:
    """Not on when, by whom and in which order they were written; a program stays one."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, ["a", "b/c", "run.sh"]), (two, ["run.sh", "b/c", "a"])):
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
            file.chmod(0o755 if name == "run.sh" else 0o600 if folder is one else 0o664)
            os.utime(file, (len(folder.name), 1_000_000_000 + len(names)))
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "a.pyc").touch()

    packed = builds.zip_folder(one, 1_795_000_000, "python/")
    entries = zipfile.ZipFile(io.BytesIO(packed)).infolist()

    assert packed == builds.zip_folder(two, 1_795_000_000, "python/")
    assert [entry.filename for entry in entries] == ["python/a", "python/b/c", "python/run.sh"]
    assert [oct(entry.external_attr >> 16) for entry in entries] == [
        "0o100644",
        "0o100644",
        "0o100755",
    ]


def test_the_archive_of_a_job_depends_on_its_files_alone(tmp_path: Path) -> None:
    """EMR is given the same bytes for the same sources."""
    contents = []
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("one", "two"):
        builds.collect(tmp_path / name, empty, SYNC_JOB.sources)
        for file in (tmp_path / name).rglob("*.py"):
            os.utime(file, (0, len(name) if name == "one" else 7))
        contents.append(builds.pack_archive(tmp_path / name))

    assert contents[0] == contents[1]


RUN_LOCK = ROOT / "requirements-run.lock"
PARTS = [RUN_LOCK, ROOT / "requirements-deploy.lock"]


@pytest.mark.parametrize("path", [builds.LOCK, *PARTS], ids=lambda path: path.name)
def test_every_package_has_its_sums(path: Path) -> None:
    """And a fixed version; the index is not named, because each machine configures it."""
    entries = builds.lock(path)
    assert len(entries) == len(re.findall("^[^ ]", path.read_text(), re.MULTILINE))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries.values())
    assert "://" not in path.read_text()


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.name)
def test_a_part_of_the_lock_is_as_in_the_whole(path: Path) -> None:
    """`make run`, `make synth` and `make setup` install one thing."""
    whole, part = builds.lock(), builds.lock(path)
    assert {*part} <= {*whole}
    assert 0 < len(part) < len(whole) / 2


def test_all_that_is_deployed_is_in_the_lock() -> None:
    """In the versions that the tests run: layers and jobs."""
    deployed = {*SYNC_JOB.packages, *LAKE_JOB.packages, *builds.pipeline_packages()}
    pins = builds.pin_versions(deployed.union(*builds.LAYERS.values()))
    assert {builds.encode_name(*each.split("==")) for each in pins} <= {*builds.lock()}


def test_what_is_not_in_the_lock_is_not_installed(tmp_path: Path) -> None:
    """By name and version, before pip is asked."""
    with pytest.raises(NotBuilt, match=r"click==0\.0\.1 is not in requirements\.lock"):
        builds.pip_install(tmp_path, ["click==0.0.1"])


def test_another_file_than_the_locked_one_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel of the same name and version; pip compares the sums."""
    wheel = tmp_path / "wheels" / "tampered-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what it was")
    entry = f"tampered @ {wheel.as_uri()} --hash=sha256:{'0' * 64}"
    monkeypatch.setattr(builds, "lock", lambda: {"tampered==1": entry})
    with pytest.raises(NotBuilt, match=r"hash|HASH|Got"):
        builds.pip_install(tmp_path / "target", ["tampered==1"])
