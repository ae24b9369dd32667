"""The documents: links lead somewhere, decisions are short, each threat has a test."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.style.source import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
WRITTEN_BY_A_RUN = {"bench/RESULTS.md"}
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SECURITY = (ROOT / "docs/operations/SECURITY.md").read_text()
_DECISIONS = (ROOT / "docs/adr/README.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_LINK = re.compile(r"\]\(([^)\s#]+)")


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links; files that a run writes need not exist yet."""
    broken = [
        link
        for link in _LINK.findall(page.read_text())
        if "://" not in link
        and not (page.parent / link).exists()
        and str((page.parent / link).resolve().relative_to(ROOT)) not in WRITTEN_BY_A_RUN
    ]
    assert broken == []


def test_files_named_in_the_guide_are_there() -> None:
    """The recipes name the files of a change exactly."""
    guide = (ROOT / "docs/design/RECIPES.md").read_text() + CONTRIBUTING
    packages = "|".join(path.name for path in (ROOT / "src/tidings").iterdir() if path.is_dir())
    paths = re.findall(r"`((?:src|layers|functions|infra|tests|docs)/[\w./]+)`", guide)
    paths += [f"src/tidings/{path}" for path in re.findall(rf"`((?:{packages})/[\w./]+)`", guide)]

    assert len(paths) > 60
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_guide_for_contributors_is_short() -> None:
    """Three screens of 40 lines with 80 columns; the rest has pages of its own."""
    screens = "\n".join(textwrap.fill(line, 80) for line in CONTRIBUTING.splitlines())
    layers = CONTRIBUTING.partition("## Layers")[2].partition("\n## ")[0]

    assert len(screens.splitlines()) <= 120
    assert len(re.findall(r"^\| `", layers, re.M)) == 8


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/adr/*.md")), ids=lambda page: page.name)
def test_decisions_are_short(page: Path) -> None:
    """A decision has at most 300 words and is in the list; the list may grow."""
    words = [each for each in page.read_text().split() if re.search(r"\w", each)]

    assert page.name == "README.md" or len(words) <= 300
    assert page.name == "README.md" or f"]({page.name})" in _DECISIONS


def test_every_dependency_has_its_reason_and_its_sum() -> None:
    """In DEPENDENCIES.md and in the lock, which `make lock` renews."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    required = [*project["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[^\w.-]", each)[0] for each in required} - {"tidings"}
    reasons = set(re.findall(r"[\w.-]+", (ROOT / "docs/design/DEPENDENCIES.md").read_text()))
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.M))

    assert len(names) > 30
    assert sorted(names - reasons) == []
    assert sorted(names - locked) == []


def _rows() -> list[str]:
    table = SECURITY.partition("## Threats")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {each.name for each in ast.walk(tree) if isinstance(each, kinds)}


def test_every_threat_names_a_test() -> None:
    """One at least, in the last column of docs/operations/SECURITY.md."""
    rows = _rows()

    assert len(rows) > 15
    assert [row for row in rows if not _TEST.search(row.rsplit(" | ", 1)[1])] == []


def test_every_test_that_is_named_is_there() -> None:
    """By file and name."""
    named = _TEST.findall(SECURITY)
    missing = [f"{path}::{name}" for path, name in named if name not in _tests_in(path)]

    assert missing == []


# Anyone could publish a package under this name.
_ON_AN_INDEX = re.compile(r"\b(?:pip|pipx|uv)\b[^\n`]*\s['\"]?tidings(?![\w-])(?:\[| @|['\"`\s])")
_PLACEHOLDER = re.compile(
    r"(?<![\w$.{-])(?:ADDRESS|CHECKOUT|FILE|FOLDER|HOST|ID|NAME|PATH|PORT|REPOSITORY|URL|VERSION)\b(?!=)"
    r"|<(?!<)[a-z]+>|…"
)


def test_nothing_is_installed_from_an_index() -> None:
    """Documents and messages name a checkout or a wheel, because no package index has Tidings."""
    places = [*DOCUMENTS, *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/**/*")]
    wrong = [
        line
        for place in places
        if place.is_file()
        for line in place.read_text().splitlines()
        if "install" in line
        and _ON_AN_INDEX.search(line)
        and "--spec ./" not in line
        and "@ git+file:" not in line  # an address, so that pip asks no index
    ]

    assert _ON_AN_INDEX.search("pip install 'tidings[serve] @ git+ADDRESS'")
    assert _ON_AN_INDEX.search("`pip install tidings`") and not _ON_AN_INDEX.search("pip install .")
    assert wrong == []


def test_commands_can_be_pasted() -> None:
    """A block of commands has no word that the reader has to replace."""
    blocks = (
        (page.name, block)
        for page in DOCUMENTS
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
    )
    wrong = [(name, found[0]) for name, block in blocks if (found := _PLACEHOLDER.findall(block))]

    assert _PLACEHOLDER.findall("tail --url https://HOST/ $NAME 'tidings @ git+ADDRESS'")
    assert wrong == []
