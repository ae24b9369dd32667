"""The layers: wheels for Lambda's machine, our packages, and nothing that is there already."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

import aws_cdk as cdk
import pytest

from infra import build_layers, node
from infra.parts.layers import Layers
from infra.paths import FUNCTIONS, LAYERS


@pytest.mark.parametrize("name", build_layers.LAYERS)
def test_layer_holds_what_its_packages_need(name: str) -> None:
    """The list is closed under dependencies, boto3 and optional extras apart."""
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


@pytest.mark.parametrize("name", build_layers.LAYERS)
def test_layer_does_not_ship_the_sdk(name: str) -> None:
    """boto3 is part of the runtime; a copy would cost every cold start."""
    assert not {"boto3", "botocore"} & set(build_layers.LAYERS[name])


def test_layer_is_built_once(tmp_path: Path) -> None:
    """A layer whose requirements are those it was built from is left alone."""
    (tmp_path / "stream" / "python").mkdir(parents=True)
    stamp = tmp_path / "stream.txt"
    stamp.write_text("\n".join(build_layers.requirements("stream")) + "\n")

    assert tmp_path / "stream" == build_layers.build("stream", vendor=tmp_path)
    assert list((tmp_path / "stream" / "python").iterdir()) == []


def test_tidings_is_a_namespace_in_both_layers() -> None:
    """An `__init__.py` would make one layer hide the other below /opt/python."""
    for layer in ("core", "aws"):
        assert not (LAYERS / layer / "python" / "tidings" / "__init__.py").exists()


def test_every_function_folder_is_deployed() -> None:
    """A folder that no function of the blueprint names is a mistake."""
    from tidings.aws import blueprint

    folders = {path.parent.name for path in FUNCTIONS.glob("*/handler.py")}

    deployed = (*blueprint.FUNCTIONS, blueprint.CAPTURE)
    assert {function.folder for function in deployed} == folders


def test_missing_node_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback out of the CDK's engine."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(node.NodeMissing, match=r"^Node\.js 20 or newer is needed .* PATH\.$"):
        node.require()


@pytest.mark.node
@pytest.mark.parametrize(("tokens", "built"), [(False, "functions"), (True, "tokens")])
def test_only_a_stage_that_takes_tokens_has_the_library_for_them(
    monkeypatch: pytest.MonkeyPatch, tokens: bool, built: str
) -> None:
    """In place of the other layer: a function has five at most."""
    wanted: list[str] = []

    def build(name: str) -> Path:
        wanted.append(name)
        return LAYERS / "core"

    monkeypatch.setattr(build_layers, "build", build)
    Layers(cdk.Stack(), "Layers", tokens=tokens)

    assert wanted == [built, "stream"]
    assert {*build_layers.LAYERS["functions"]} < {*build_layers.LAYERS["tokens"]}
