"""Every command in a document is run here, or named with the test that runs what it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidings.server.running import Server

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCUMENTS = [
    page
    for pages in (
        "*.md",
        "docs/*.md",
        "docs/concepts/*.md",
        "docs/start/*.md",
        "docs/guides/*.md",
        "docs/operations/*.md",
        "docs/design/*.md",
    )
    for page in sorted(ROOT.glob(pages))
]
_FENCE = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MOVING = re.compile(r"^## Moving from oplog\n.*?^## ", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:make|tidings|python -m) [^`<]+)`")
_ADDRESS = "http://127.0.0.1:8042"
_OF_THE_AGENT = (
    "8043"  # the port in docs/guides/AGENT.md, which tests/unit/agent/test_agent.py runs
)
# Their commands depend on each other: tests/docs/test_moving.py, tests/unit/lake/test_guide.py,
# tests/docs/test_production.py, tests/docs/test_quick_starts.py.
_AS_A_SCRIPT = (
    *("CHAINING.md", "GROWING.md", "LAKE.md", "PRODUCTION.md"),
    *(page.name for page in sorted(ROOT.glob("docs/start/*.md"))),
)
_NEEDS = {"java": re.compile("tidings sync|spark"), "curl": re.compile(r"\bcurl\b")}
_OVER_HTTP = re.compile(
    r"tidings (tail|get|post|status|consumers|hooks|log|sync|erase|erasures|feeds)\b"
)
_SECONDS = 300  # Spark needs half a minute to begin, of two cores that it has for itself

# These commands run elsewhere: they are this very run, or take an account or minutes.
ELSEWHERE = {
    "make run": "tests/release/test_clone.py",
    ". .venv/bin/activate": "tests/release/test_clone.py",
    "make test": "this run",
    ".venv/bin/pytest tests/functions/test_ingest.py": "this run",
    "make test-twin": "make test-all: .ci/run",
    "make test-data": "make test-all: .ci/run",
    "make test-runtime": "make test-all: .ci/run",
    "make test-bare": "tests/bare.sh by hand: it needs root, and minutes",
    "make test-spark": "make test-all: .ci/run",
    "make test-deploy": "make test-all: .ci/run",
    "make test-all": ".ci/run",
    "make check test": "make check: .ci/run; make test: this run",
    "make synth": "tests/release/test_clone.py",
    "make sim": "tests/simulation, and .ci/run with few seeds",
    "make real-dump": "tests/real_dumps/test_real_dump.py, of a sample: it fetches two suites",
    "make deploy-smoke": "by hand: it needs npm",
    "make sandbox": "tests/infra/test_sandbox.py; make deploy-smoke by hand",
    ".venv/bin/tidings archive compact --archive ./feed --table ./lake --url"
    " http://127.0.0.1:8042": "tests/unit/lake",
    ".venv/bin/tidings verify --data tidings-data": "tests/unit/admin/test_verify_server.py",
    ".venv/bin/tidings rebuild --data tidings-data --dry-run": (
        "tests/unit/admin/test_verify_server.py"
    ),
    **dict.fromkeys(
        (
            ".venv/bin/tidings sync table postgresql:///app videos --type video"
            " --changed updated_at --dry-run",
            ".venv/bin/tidings sync table postgresql:///app videos --type video"
            " --changed updated_at --rate 2000 --progress videos.sync",
        ),
        "tests/unit/sync/table/test_command.py, which has a PostgreSQL",
    ),
    **dict.fromkeys(
        (
            ".venv/bin/tidings keys create --host --role read --role admin --data tidings-data",
            ".venv/bin/tidings keys create --host --role admin --feeds team-a- --data tidings-data",
        ),
        "tests/unit/server/test_access.py: such a key closes the feeds of other commands",
    ),
    "prometheus --config.file=prometheus.yml": "tests/world/test_monitoring.py",
    "curl -s 'http://localhost:9090/api/v1/query?query=tidings_log_head'": (
        "tests/world/test_monitoring.py"
    ),
    **dict.fromkeys(
        (
            "curl -s http://127.0.0.1:8042/openapi.json -o openapi.json",
            "npx openapi-typescript openapi.json -o openapi.d.ts",
            "curl -s http://127.0.0.1:8042/asyncapi.json -o asyncapi.json",
            "node models.mjs > models.ts",
        ),
        "tests/world/test_descriptions.py",
    ),
    "python -m tests.style.operations_page": "tests/style/test_catalogues.py",
    "ssh-keygen -Y verify -f signers -I releases -n file -s SHA256SUMS.sig < SHA256SUMS": (
        "tests/release/test_release.py"
    ),
}
MAKE = re.compile(r"make ([a-z-]+)")


def fenced(page: Path) -> Iterator[str]:
    """Yield the commands of *page*, continued lines joined; test_moving.py runs its own section."""
    for block in _FENCE.findall(_MOVING.sub("", page.read_text())):
        yield from block.replace("\\\n", " ").strip().splitlines()


# A command in several documents is run once, for the last of them.
_COMMANDS = {
    command: page.name
    for page in DOCUMENTS
    if page.name not in _AS_A_SCRIPT
    for command in fenced(page)
    if command not in ELSEWHERE and _OF_THE_AGENT not in command
}


def _grouped() -> Iterator[Any]:
    """Yield the commands of a page that need the same tools; later ones use the earlier ones."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for command, page in _COMMANDS.items():
        needs = tuple(need for need, runs in _NEEDS.items() if runs.search(command))
        groups.setdefault((page, needs), []).append(command)
    for (page, needs), commands in groups.items():
        marks = [getattr(pytest.mark, need) for need in needs]
        yield pytest.param(commands, id=" ".join((page, *needs)), marks=marks)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--feeds", "main,documents") as running:
        yield running


@pytest.mark.parametrize("commands", list(_grouped()))
def test_the_commands_of_a_document_work(commands: list[str], server: Server) -> None:
    """In order, unchanged but for the port, and ending after the first event of a stream."""
    for command in commands:
        _run(command, server)


def _run(command: str, server: Server) -> None:
    address = server.url.rstrip("/")
    path = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    text = command.replace(_ADDRESS, address).replace(".venv/bin/", f"{BIN}/")
    if _OVER_HTTP.search(text):
        text += f" --url {address}"
    if "tidings feed " in text or "tidings keys" in text:  # of a feed that no other command uses
        text += f" --feed documents --data {server.data}"
    if "tidings tail" in text:
        text = f"{BIN}/tidings post update video x1 --url {address} && {text} --count 1"

    done = subprocess.run(
        text, shell=True, cwd=ROOT, env=path, capture_output=True, text=True, timeout=_SECONDS
    )

    stopped_by_its_own_limit = "--max-time" in text and done.returncode == 28
    assert done.returncode == 0 or stopped_by_its_own_limit, (command, done.stderr)
    assert done.stdout, command
    assert "curl" not in text or " 4" not in done.stdout.partition("\n")[0]  # no refusal


def test_the_commands_run_elsewhere_are_still_in_a_document() -> None:
    """The list above does not outlive the documents."""
    texts = "\n".join(page.read_text() for page in DOCUMENTS)

    assert [command for command in ELSEWHERE if command not in texts] == []


def test_targets_named_in_prose_exist() -> None:
    """`make x` anywhere in a document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for page in DOCUMENTS
        for found in _INLINE.findall(page.read_text())
        for target in MAKE.findall(found)
    }

    assert named
    assert named <= targets


def test_the_makefile_runs_what_it_names() -> None:
    """Each target that starts a module or a command starts one that exists."""
    text = (ROOT / "Makefile").read_text()
    modules = set(re.findall(r"-m (tests\.\w+|infra\.\w+|bench)\b", text))

    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
