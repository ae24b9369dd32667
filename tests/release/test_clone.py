"""Commands of the first pages in a clone of the last commit, with only what each of them installs.

This checkout has everything, so it cannot show that a target of the Makefile installs too little.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from infra import ROOT
from tests.docs.test_quick_starts import Folder, free_ports, play

# Two installations from a package index, which took six minutes on two busy cores.
pytestmark = pytest.mark.timeout(1800)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z -]*[a-z])(?: [A-Z]+=[^`\n]*)?(?:`|$)", re.M)
_TARGET = re.compile(r"^([a-z-]+): ?(.*?)  ## ", re.M)
_SHOWN = re.compile(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
HERE = ("run", "synth", "destroy")
# These targets do not install everything, as `make check` of each run of CI does in its own clone.
ELSEWHERE = {
    "test-runtime": ".ci/run; it has an environment of its own",
    "test-bare": "by hand, as it needs root and debootstrap; it clones, too",
    "test-all": "its lanes: .ci/run",
    "localstack": "by hand, as it needs Docker; it begins with `make synth STAGE=dev`",
    "clean": "it installs and needs nothing",
    "help": "likewise",
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "tidings"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def run(clone: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run *command* in the clone, without variables that lead to this checkout."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")
    kept = {name: text for name, text in os.environ.items() if name not in ours}
    return subprocess.run(
        command, cwd=clone, env=kept | environment, capture_output=True, text=True, check=False
    )


def test_the_readme_can_be_tried(clone: Path) -> None:
    """Each block in a terminal with no environment but the page's; `make synth` has a test below.

    The recipe of `make run` gets another port, because another server may have the default one.
    """
    ports = free_ports()
    makefile = clone / "Makefile"
    makefile.write_text(makefile.read_text().replace("--demo", f"--demo --port {ports['8042']}"))
    page, _, _ = (clone / "README.md").read_text().partition("## Promises")

    play(page, Folder(clone, ports, installs=True))


def test_make_synth(clone: Path) -> None:
    """The commands of docs/start/AWS.md, with a stage; also a stage with pipelines could be packed.

    tests/infra synthesises and lints every stage.
    """
    ((commands, shown),) = _SHOWN.findall((ROOT / "docs/start/AWS.md").read_text())
    done = run(clone, "bash", "-euc", commands)
    assert (done.returncode, done.stdout[-len(shown) :]) == (0, shown), done.stderr

    pinned = "from infra import builds;"
    pinned += "print(builds.pin_versions(builds.pipeline_packages()))"
    packed = run(clone, ".venv/bin/python", "-c", pinned)
    assert "psycopg==" in packed.stdout, packed.stderr


def test_make_destroy(clone: Path) -> None:
    """It gets as far as AWS, which does not answer."""
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "eu-central-1"}
    done = run(clone, "make", "destroy", "STAGE=ann", **nowhere, **keys)

    assert "Could not connect to the endpoint URL" in done.stderr


def test_every_command_that_installs_less_than_everything_is_run() -> None:
    """And each `make` of a page is a target; those that install everything are run by CI."""
    targets = dict(_TARGET.findall((ROOT / "Makefile").read_text()))
    partial = {name for name, needs in targets.items() if "$(STAMP)" not in needs}
    named = {
        name
        for page in PAGES
        for names in _MAKE.findall(page.read_text())
        for name in names.split()
    }

    assert partial == {*HERE, *ELSEWHERE}
    assert named <= {*targets}
    assert {"run", "synth", "test"} <= named
