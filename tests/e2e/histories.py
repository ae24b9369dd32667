"""A git repository with a hundred commits of everything a history can do to files."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

COMMITS = 100
CHANGES_MAX = 8
FILES_MIN = 30  # below it files are only added
_WORDS = (
    "a", "b", "README.md", "src", "lib", "with blank", "ünïcödé", "日本語", 'quo"te', "back\\slash",
    "-dash", "#hash", "%2F", "new\nline", "tab\t", "\U0001f680", "a,b", "A", "...", "e\u0301",
)  # fmt: skip


def create(folder: Path, seed: int) -> Path:
    """Create a repository of its own in *folder*; the same one for the same *seed*."""
    repo = folder / "history"
    subprocess.run(["git", "init", "--quiet", str(repo)], check=True)
    stream = "".join(_commits(random.Random(seed)))
    subprocess.run(
        ["git", "fast-import", "--quiet", "--force"], cwd=repo, input=stream.encode(), check=True
    )
    subprocess.run(["git", "symbolic-ref", "HEAD", "refs/heads/told"], cwd=repo, check=True)
    return repo


def latest(repo: Path, folder: Path, count: int) -> Path:
    """Clone the last *count* commits of *repo* into *folder*, the first with all files."""
    clone = folder / "latest"
    depth = f"--depth={count}"
    command = ["git", "clone", "--quiet", "--no-checkout", depth, repo.as_uri(), str(clone)]
    subprocess.run(command, check=True)
    return clone


def files(repo: Path) -> dict[str, str]:
    """`git ls-tree -r HEAD`: path to blob, submodules left out."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "-z", "--full-tree", "HEAD"],
        cwd=repo,
        capture_output=True,
        check=True,
    )
    found = {}
    for entry in listed.stdout.decode().split("\0")[:-1]:
        about, _, path = entry.partition("\t")
        _, kind, blob = about.split(" ")
        if kind == "blob":
            found[path] = blob
    return found


def commit_count(repo: Path) -> int:
    counted = subprocess.run(
        ["git", "rev-list", "--first-parent", "--count", "HEAD"],
        cwd=repo,
        capture_output=True,
        check=False,
    )
    return int(counted.stdout or 0)


def _commits(choose: random.Random) -> list[str]:
    """Return a fast-import stream. *paths* may name files that a later folder has replaced."""
    lines: list[str] = []
    paths: set[str] = set()
    for number in range(COMMITS):
        lines.append("commit refs/heads/told\n")
        author = choose.choice(["Ada <ada@example.org>", "Zoë Ω <zoe@example.org>"])
        lines.append(f"committer {author} {1_700_000_000 + number * 60} +0100\n")
        lines.append(_data(f"Change {number}"))
        for _ in range(choose.randint(1, CHANGES_MAX)):
            lines.append(_change(choose, paths))
    return lines


def _change(choose: random.Random, paths: set[str]) -> str:
    kind = choose.random()
    if len(paths) < FILES_MIN or kind < 0.35:
        path = "/".join(choose.choice(_WORDS) for _ in range(choose.randint(1, 4)))
        _make_room(paths, path)
        return _write(choose, paths, path)
    path = choose.choice(sorted(paths))
    if kind < 0.7:
        return _write(choose, paths, path)
    paths.remove(path)
    if kind < 0.85:
        return f"D {_quoted(path)}\n"
    new = f"moved/{choose.choice(_WORDS)}-{choose.randint(0, 99)}"
    _make_room(paths, new)
    paths.add(new)
    return f"R {_quoted(path)} {_quoted(new)}\n"


def _write(choose: random.Random, paths: set[str], path: str) -> str:
    paths.add(path)
    mode = choose.choice(["100644", "100644", "100755", "120000"])
    return f"M {mode} inline {_quoted(path)}\n" + _data(f"content {choose.randint(0, 400)}")


def _make_room(paths: set[str], path: str) -> None:
    """Remove the paths below *path*, and a file that becomes one of its folders."""
    gone = {
        other for other in paths if other.startswith(f"{path}/") or path.startswith(f"{other}/")
    }
    paths -= gone


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
