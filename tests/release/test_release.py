"""What `make release` refuses, and that the same sources make the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from infra import ROOT, build_release, builds
from infra.build_release import NotReleased
from tidings.core.version import VERSION
from tidings.http.endpoints.status import CLIENT

TIME_S = 1_795_000_000
ENTRY = f"# {VERSION} - 2026-11-22\n\n- Something.\n"
PAGE = f"docs/changes/{VERSION}.md"
_PACKED = (*("src", "functions"),)
UPGRADING = ROOT / "docs/operations/UPGRADING.md"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a page of changes, as committed."""
    folder = tmp_path / "repo"
    (folder / PAGE).parent.mkdir(parents=True)
    (folder / PAGE).write_text(ENTRY)
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


@pytest.mark.parametrize("file", [PAGE, "new file"])
def test_a_dirty_tree_is_refused(repo: Path, file: str) -> None:
    """A file that was changed or added and not committed, by its name."""
    (repo / file).write_text(f"{ENTRY}more\n")

    with pytest.raises(NotReleased, match=file):
        build_release.check(repo, VERSION)


@pytest.mark.parametrize(
    ("page", "text", "why"),
    [
        ("9.9.9", "# 9.9.9 - 2030-01-01\n\n- New.\n", "its newest page is 9.9.9"),
        (VERSION, f"# {VERSION} - 2026-11-22\n", f"{VERSION}.md lacks"),
        (VERSION, f"# {VERSION}\n\n- No date.\n", f"{VERSION}.md lacks"),
        ("0.0.9", "# 0.0.8 - 2026-01-01\n\n- Old.\n", "0.0.9.md lacks"),
    ],
)
def test_a_version_without_a_page_is_refused(repo: Path, page: str, text: str, why: str) -> None:
    """The newest page is that of the version; each page has its version, a date and an entry."""
    (repo / PAGE).with_name(f"{page}.md").write_text(text)
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


def test_the_changes_of_this_version_have_a_page() -> None:
    """The changelog links to each page, and the list of unreleased changes stays short."""
    build_release.check_changes(ROOT / "docs/changes", VERSION)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unlinked = [
        each.name for each in (ROOT / "docs/changes").iterdir() if each.name not in changelog
    ]

    assert unlinked == []
    assert changelog.count("\n- ") <= 40


def test_the_documents_agree_on_what_is_published() -> None:
    """All of them have this sentence, or none does."""
    pages = ("CHANGELOG.md", "SECURITY.md", "docs/operations/UPGRADING.md", PAGE)
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in pages]

    assert len({f"{VERSION} has not been published yet" in text for text in texts}) == 1
    assert f"\n### {VERSION}\n" in texts[2]  # the notes of an update, even if there are none


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

    with pytest.raises(NotReleased, match=r"install Node\.js 22"):
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


def test_a_release_is_complete_and_signed(tmp_path: Path) -> None:
    """Its sums and signature hold, its SBOM lists what is shipped, its container can be built."""
    dist, key = tmp_path / "dist", tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    build_release.build(dist, TIME_S)
    build_release.sign(dist / build_release.SUMS, str(key))
    (tmp_path / "signers").write_text(f"releases {key.with_suffix('.pub').read_text()}")

    verified = _verify(dist, "releases")
    assert verified.returncode == 0, verified.stderr
    assert _verify(dist, "another").returncode
    subprocess.run(["sha256sum", "--check", "--quiet", build_release.SUMS], cwd=dist, check=True)
    bom = json.loads((dist / f"tidings-{VERSION}.cdx.json").read_text())
    assert bom["metadata"]["component"]["version"] == VERSION
    names = {each["name"] for each in bom["components"]}
    assert names >= {"uvicorn", "uvloop", *builds.SYNC_JOB.packages, *builds.LAYERS["tokens"]}
    with tarfile.open(dist / f"tidings-{VERSION}-container.tar.gz") as archive:
        packed = {each.removeprefix(f"tidings-{VERSION}/") for each in archive.getnames()}
    assert packed >= {"examples/Containerfile", "requirements-run.lock", "src/tidings/__main__.py"}
    with (dist / build_release.SUMS).open("a") as sums:
        sums.write("\n")
    assert _verify(dist, "releases").returncode


def _verify(dist: Path, signer: str) -> subprocess.CompletedProcess[str]:
    """Verify the sums as UPGRADING.md describes it."""
    (command,) = re.findall(r"^ssh-keygen .*$", UPGRADING.read_text(), re.MULTILINE)
    command = command.replace("signers", "../signers").replace("releases", signer)
    return subprocess.run(["sh", "-c", command], cwd=dist, capture_output=True, text=True)
