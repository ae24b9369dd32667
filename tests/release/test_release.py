"""What `make release` refuses, and that the same sources make the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from infra import ROOT, build_release
from infra.build_release import NotReleased
from tidings.core.version import VERSION
from tidings.http.endpoints.status import CLIENT

TIME_S = 1_795_000_000
ENTRY = f"# Changelog\n\n## [{VERSION}] - 2026-11-22\n\n- Something.\n"
_PACKED = (*("src", "functions"),)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a changelog, as committed."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "CHANGELOG.md").write_text(ENTRY)
    _git(folder, "init", "--quiet")
    _commit(folder)
    return folder


def _git(folder: Path, *arguments: str) -> None:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "Change")


def test_what_is_committed_is_released(repo: Path) -> None:
    """Also a second time, once it is tagged."""
    build_release.check(repo, VERSION)
    _git(repo, "tag", "-a", f"v{VERSION}", "-m", "it")
    build_release.check(repo, VERSION)


@pytest.mark.parametrize("file", ["CHANGELOG.md", "new file"])
def test_a_dirty_tree_is_refused(repo: Path, file: str) -> None:
    """A file that was changed or added and not committed, by its name."""
    (repo / file).write_text(f"{ENTRY}more\n")

    with pytest.raises(NotReleased, match=file):
        build_release.check(repo, VERSION)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# Changelog\n\n## [Unreleased]\n\n- Something.\n", "its newest entry is none"),
        ("## [9.9.9] - 2030-01-01\n\n- New.\n\n" + ENTRY, "its newest entry is 9.9.9"),
        (f"## [{VERSION}] - 2026-11-22\n\n## [0.0.1] - 2020-01-01\n\n- Old.\n", "is empty"),
        (f"## [{VERSION}]\n\n- No date.\n", "its newest entry is none"),
    ],
)
def test_a_version_without_an_entry_is_refused(repo: Path, text: str, why: str) -> None:
    """The newest dated entry of the changelog is that of the version, and says something."""
    (repo / "CHANGELOG.md").write_text(text)
    _commit(repo)

    with pytest.raises(NotReleased, match=why):
        build_release.check(repo, VERSION)


@pytest.mark.parametrize("options", [["-a", "-m", "it"], []])
def test_a_version_is_released_once(repo: Path, options: list[str]) -> None:
    """The tag is at another commit: the version must be raised first."""
    _git(repo, "tag", *options, f"v{VERSION}")
    (repo / "more").touch()
    _commit(repo)

    with pytest.raises(NotReleased, match="raise the version"):
        build_release.check(repo, VERSION)


def test_the_changelog_has_this_version() -> None:
    """A new version has an entry with its changes."""
    build_release.check_changelog(ROOT / "CHANGELOG.md", VERSION)


def test_the_notes_of_updates_have_this_version() -> None:
    """What an update to it has to mind, were it nothing."""
    notes = (ROOT / "docs/operations/UPGRADING.md").read_text(encoding="utf-8")
    assert f"\n### {VERSION}\n" in notes


def test_the_wheel_depends_on_its_files_alone(tmp_path: Path) -> None:
    """Built here, and from a copy that was written at another time."""
    copy = tmp_path / "copy"
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", "vendor")
    for folder in (*_PACKED, "console", CLIENT):
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=left_out, copy_function=shutil.copyfile
        )
    for file in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / file, copy / file)
    (copy / "functions/stream/run.sh").chmod(0o755)

    sums = []
    for root in (ROOT, copy):
        build_release.wheel(tmp_path / root.name, TIME_S, root)
        (built,) = (tmp_path / root.name).glob("*.whl")
        sums.append(hashlib.sha256(built.read_bytes()).hexdigest())

    assert sums[0] == sums[1]


def test_the_npm_package_depends_on_its_files_alone(tmp_path: Path) -> None:
    """It contains the files that its exports name, and is called after the version."""
    packed = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        build_release.npm_package(tmp_path / name)
        (built,) = (tmp_path / name).iterdir()
        packed.append(built.read_bytes())

    assert built.name == f"tidings-client-{VERSION}.tgz"
    with tarfile.open(built) as archive:
        names = set(archive.getnames())
        description = json.load(archive.extractfile("package/package.json"))  # type: ignore[arg-type]
    exported = description["exports"]["."].values()
    assert names >= {f"package/{file.removeprefix('./')}" for file in exported}
    assert names >= {"package/README.md", "package/LICENSE"}
    assert packed[0] == packed[1]


def test_a_release_without_npm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotReleased, match=r"install Node\.js 20"):
        build_release.npm_package(tmp_path)


def test_the_sums_are_those_of_the_files(tmp_path: Path) -> None:
    """In the format of `sha256sum --check`, without a sum of themselves."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    build_release.sums(tmp_path)
    lines = build_release.sums(tmp_path)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", build_release.SUMS], cwd=tmp_path, capture_output=True
    )

    assert [line.partition("  ")[2] for line in lines] == ["a", "b"]
    assert checked.returncode == 0
