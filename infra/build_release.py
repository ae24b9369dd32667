"""Build a release in `dist/`, with checksums: packages, layers, container context, SBOM.

    python -m infra.build_release [KEY]

KEY is the file of an SSH key that signs the checksums. The build is reproducible: every file has
the commit's time, archives are sorted, and the build backend is pinned in requirements.lock. It
fails if there are uncommitted changes, or if docs/changes has no page for the version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from infra import BUILD, ROOT, builds
from infra.builds import NotBuilt, build_layer, build_ours
from tidings.core.version import VERSION

DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
CLIENT = ROOT / "clients" / "javascript"
_FROM = {"git": "Git", "npm": "Node.js 22 or newer", "ssh-keygen": "OpenSSH"}


class NotReleased(Exception):
    """The release cannot be built; the message is one sentence that names the remedy."""


def main() -> None:
    key = sys.argv[1] if sys.argv[1:] else ""
    try:
        check(ROOT, VERSION)
        if key and not Path(key).is_file():
            raise NotReleased(f"the key {key} is not a file")
        builds.warn_if_uncompiled()
        time_s = int(_git(ROOT, "log", "-1", "--format=%ct"))
        for line in build(DIST, time_s):
            sys.stdout.write(f"{line}\n")
        if key:
            sign(DIST / SUMS, key)
    except (NotReleased, NotBuilt) as problem:
        sys.exit(f"nothing was released: {problem}")


def check(root: Path, version: str) -> None:
    """Check that *version* can be released from *root*.

    Raises:
        NotReleased: the tree has uncommitted changes, there is no page for *version*, or *version*
            was already released from another commit.
    """
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        raise NotReleased(f"{len(changed)} files have uncommitted changes, first {changed[0][3:]}")
    check_changes(root / "docs" / "changes", version)
    tagged = _git(root, "tag", "--list", f"v{version}", "--format=%(*objectname)%(objectname)")
    if tagged and not tagged.startswith(_git(root, "rev-parse", "HEAD")):
        raise NotReleased(f"the tag v{version} names another commit; raise the version")


def check_changes(folder: Path, version: str) -> None:
    """Check that each page of *folder* describes a version, and that *version* is the newest.

    Raises:
        NotReleased: a page has another heading or no entry, or the newest page is another one.
    """
    pages = sorted(folder.glob("*.md"), key=lambda page: [*map(int, re.findall(r"\d+", page.stem))])
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if not re.match(rf"(?s)# {re.escape(page.stem)} - \d{{4}}-\d\d-\d\d\n.*\n- ", text):
            raise NotReleased(f"{page.name} lacks a heading of version and date, or an entry")
    newest = pages[-1].stem if pages else "none"
    if newest != version:
        raise NotReleased(f"docs/changes has no page for {version}; its newest page is {newest}")


def build(dist: Path, time_s: int) -> list[str]:
    """Build everything in *dist*, which is emptied first; return the lines of the checksum file.

    Raises:
        NotBuilt: pip found no wheel, or the network is unavailable.
        NotReleased: the wheel or the npm package was not built.
    """
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    wheel(dist, time_s)
    npm_package(dist)
    for name in builds.OURS:
        _layer(dist, name, build_ours(name, BUILD / "release" / "layers"), time_s)
    for name in builds.LAYERS:
        _layer(dist, name, build_layer(name), time_s, compiled=True)
    spark = dist / f"tidings-{VERSION}-spark.tgz"
    spark.write_bytes(builds.build_job(builds.SYNC_JOB).read_bytes())
    container_context(dist)
    bill_of_materials(dist, time_s)
    return sums(dist)


def wheel(dist: Path, time_s: int, root: Path = ROOT) -> None:
    """Build the wheel of *root* in *dist*.

    Raises:
        NotReleased: the build backend failed.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    _run("the wheel was not built", command, cwd=root, env=_at(time_s))


def npm_package(dist: Path) -> None:
    """Pack `clients/javascript` in *dist*, as `npm publish` would.

    npm gives all files the same time.

    Raises:
        NotReleased: npm is missing, or failed.
    """
    command = ["npm", "pack", "--silent", "--pack-destination", str(dist.resolve())]
    _run("the npm package was not built", command, cwd=CLIENT)


def container_context(dist: Path) -> None:
    """Pack `examples/Containerfile` of the commit in *dist*, with the files that it copies."""
    text = (ROOT / "examples" / "Containerfile").read_text(encoding="utf-8")
    copied = " ".join(re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)).split()
    target = dist.resolve() / f"tidings-{VERSION}-container.tar.gz"
    options = [f"--prefix=tidings-{VERSION}/", f"--output={target}"]
    _git(ROOT, "archive", *options, "HEAD", "examples/Containerfile", *copied)


def bill_of_materials(dist: Path, time_s: int) -> None:
    """List the locked packages of a server and those of the archives in the form of CycloneDX.

    Raises:
        NotReleased: cyclonedx-py failed.
    """
    pins = builds.pin_versions({*builds.SYNC_JOB.packages}.union(*builds.LAYERS.values()))
    shipped = {*builds.lock(ROOT / "requirements-run.lock"), *pins}
    entries = "\n".join(builds.lock()[each] for each in sorted(shipped))
    project = BUILD / "release" / "pyproject.toml"  # with the version, which is dynamic in ours
    text = (ROOT / project.name).read_text(encoding="utf-8")
    project.write_text(text.replace('dynamic = ["version"]', f'version = "{VERSION}"'))
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "-", "--output-reproducible"]
    command += ["--pyproject", str(project), "-o", str(dist / f"tidings-{VERSION}.cdx.json")]
    _run("the SBOM was not written", command, input=entries, env=_at(time_s))


def sign(file: Path, key: str) -> None:
    """Sign *file* with the SSH key in the file *key*; the signature is next to it (`.sig`).

    Raises:
        NotReleased: ssh-keygen is missing, or failed.
    """
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", key, str(file)]
    _run(f"{file.name} was not signed", command)


def sums(dist: Path) -> list[str]:
    """Write the checksums in the format of `sha256sum --check`; return the lines."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"
        for path in sorted(dist.iterdir())
        if path.name != SUMS
    ]
    (dist / SUMS).write_text("\n".join(lines) + "\n")
    return lines


def _layer(dist: Path, name: str, folder: Path, time_s: int, *, compiled: bool = False) -> None:
    target = dist / f"tidings-{VERSION}-layer-{name}.zip"
    target.write_bytes(builds.zip_folder(folder / "python", time_s, "python/", compiled=compiled))


def _git(root: Path, *arguments: str) -> str:
    return _run(f"git {arguments[0]}", ["git", *arguments], cwd=root).rstrip()


def _at(time_s: int) -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}


def _run(problem: str, command: list[str], **options: Any) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError:
        raise NotReleased(f"{command[0]} is missing; install {_FROM[command[0]]}") from None
    if done.returncode:
        raise NotReleased(f"{problem}: {done.stderr.strip()}")
    return str(done.stdout)


if __name__ == "__main__":
    main()
