"""The layers: wheels for Lambda's machine, our packages, and nothing that is there already."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import requires, version
from pathlib import Path

import aws_cdk as cdk
import pytest

from infra import FUNCTIONS, build_layers, cdk_cli, packing, settings
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


def _nothing_but_data(target: Path, wanted: Iterable[str], platform: object) -> None:
    for service in ("s3", "sqs"):
        (target / "botocore" / "data" / service).mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize("name", build_layers.LAYERS)
def test_layer_holds_what_its_packages_need(name: str) -> None:
    """The list is closed under dependencies, optional extras apart."""
    listed = set(build_layers.LAYERS[name])
    needed = {
        re.split(r"[^A-Za-z0-9._-]", line)[0].replace("_", "-").lower()
        for package in listed
        for line in requires(package) or []
        if "extra ==" not in line and 'python_version < "3.11"' not in line
    }
    elsewhere = set(build_layers.LAYERS["functions"]) if name != "functions" else set()

    assert {each for each in needed if "platform_system" not in each} <= (
        listed | elsewhere | {"colorama", "typing-extensions"}
    )


@pytest.mark.node
def test_every_client_of_the_code_is_made_of_the_layer() -> None:
    """By the botocore that the tests run, which the runtime may not have: nothing of this
    environment is there, and nothing that the layer lacks is asked for.
    """
    layer = build_layers.build("functions") / "python"
    made = subprocess.run(
        [sys.executable, "-ISB", "-c", _CLIENTS, str(layer), *build_layers.services()],
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [
        f"{layer}/botocore/__init__.py",
        version("botocore"),
        *build_layers.services(),
    ]
    described = {each.name for each in (layer / "botocore" / "data").iterdir() if each.is_dir()}
    assert described == {*build_layers.services()} >= {"dynamodb", "lambda", "s3"}
    assert sum(each.stat().st_size for each in layer.rglob("*") if each.is_file()) < LAYER_BYTES_MAX


def test_a_client_whose_service_cannot_be_known_is_refused(tmp_path: Path) -> None:
    """It would be made of nothing, in production first."""
    module = tmp_path / "module.py"
    module.write_text("session.create_client('s3')\nsession.create_client(name)\n")

    with pytest.raises(build_layers.UnknownClient, match=r"module\.py:2: the service of"):
        list(build_layers.clients(module))


def test_a_layer_is_built_again_when_the_code_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the layer names the compiled files and the services."""
    monkeypatch.setattr(packing, "install", _nothing_but_data)
    build_layers.build("functions", vendor=tmp_path)
    stamp = (tmp_path / "functions.txt").read_text().splitlines()
    assert {f"botocore for {service}" for service in build_layers.services()} < {*stamp}

    monkeypatch.setattr(build_layers, "services", lambda: ("sqs",))
    build_layers.build("functions", vendor=tmp_path)
    data = tmp_path / "functions" / "python" / "botocore" / "data"
    assert [each.name for each in data.iterdir()] == ["sqs"]


def test_what_is_compiled_is_taken_as_it_is(tmp_path: Path) -> None:
    """Without a look at its source's time, which an archive changes; in every Python alike."""
    (tmp_path / "module.py").write_text("def where(): return where.__code__.co_filename\n")
    build_layers.compile_all(tmp_path, sys.executable)
    (compiled,) = tmp_path.rglob("*.pyc")
    first = compiled.read_bytes()
    assert first[4:8] == b"\x01\0\0\0"  # by hash, unchecked: PEP 552
    assert b"/opt/python/module.py" in first and str(tmp_path).encode() not in first

    os.utime(tmp_path / "module.py", (0, 0))
    compiled.unlink()
    build_layers.compile_all(tmp_path, sys.executable)
    assert compiled.read_bytes() == first


def test_each_layer_contains_its_packages_alone(tmp_path: Path) -> None:
    """Files that were deleted since the last build are deleted from the layer."""
    stale = tmp_path / "core" / "python" / "tidings" / "core" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    layers = {name: build_layers.build_ours(name, tmp_path) for name in build_layers.OURS}
    packages = {
        name: {path.name for path in (folder / "python" / "tidings").iterdir()}
        for name, folder in layers.items()
    }

    assert packages == {"core": {"__init__.py", "core", "http", "assembly"}, "aws": {"aws"}}
    assert not stale.exists()
    assert not list(tmp_path.rglob("*.pyc"))


def test_the_layers_of_our_code_import_without_the_rest(tmp_path: Path) -> None:
    """Import every module from the built layers and third-party packages alone."""
    paths = [str(build_layers.build_ours(name, tmp_path) / "python") for name in build_layers.OURS]
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

    with pytest.raises(cdk_cli.NodeMissing, match=r"^Node\.js 20 or newer is needed .* PATH\.$"):
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

    monkeypatch.setattr(build_layers, "build", build)
    (dev,) = settings.choose_stages("dev")
    Layers(cdk.Stack(), "Layers", dev, tokens=tokens)
    assert wanted == [built]
    Layers(cdk.Stack(), "Layers", replace(dev, xray=True), tokens=tokens)
    assert wanted == [built, "tracing", built]
    assert {*build_layers.LAYERS["functions"]} < {*build_layers.LAYERS["tokens"]}
