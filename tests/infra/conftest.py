"""The templates, synthesised once: it takes half a minute and needs Node.js."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from infra import sandbox, settings, synth
from tests.infra.templates import Template, of_assembly
from tests.planted.plants import WRONG


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fake an account of AWS, in which a stage is deleted without long pauses."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(sandbox, "LOOK_S", 0.01)
    monkeypatch.setattr(sandbox, "LINGER_S", 0.2)
    with mock_aws():
        yield


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CDK's output for every stage, made where secrets lie in the environment."""
    outdir = tmp_path_factory.mktemp("cdk") / "cdk.out"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TIDINGS_PASSWORD", "TIDINGS_KEY", "PASSWORD", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, WRONG)
        synth.synth(outdir)
    return outdir


@pytest.fixture(scope="session", params=settings.STAGES, ids=lambda stage: stage.name)
def template(assembly: Path, request: pytest.FixtureRequest) -> Template:
    """The templates of each stage in turn."""
    stage: settings.Stage = request.param
    return Template(stage, of_assembly(assembly, stage.name))
