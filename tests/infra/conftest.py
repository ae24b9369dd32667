"""The templates, synthesised once: it takes half a minute and needs Node.js."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import settings, synth
from tests.infra.templates import Template
from tests.planted.plants import WRONG


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
    return Template(stage, synth.of_assembly(assembly, stage.name))
