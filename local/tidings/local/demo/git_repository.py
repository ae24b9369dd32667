"""
A git repository as operations on files: its history, and its working tree as it changes.

The object is a path, of type `file`. Whoever folds all operations of `history` has exactly the
files of that commit, and after those of `WorkingTree` the files on disk. Submodules are no
files and are left out, as are names that are not UTF-8 or longer than an id may be.
"""

from __future__ import annotations

import os
import posixpath
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidings.core import limits
from tidings.core.model import timestamps

Operation = dict[str, Any]
Warn = Callable[[str], None]
_HEADER = "%H%x00%ct%x00%an%x00%s%x00"
_READ_BYTES = 64 * 1024
_HASHED_AT_ONCE = 100  # paths on one command line, far below what the kernel takes
_SUBJECT_CHARS_MAX = 200  # a message is shown on one line
_NO_FILE = ("000000", "160000")  # nothing there, and a submodule


class NoRepository(Exception):
    """One sentence says why there is no history to read."""


@dataclass(frozen=True, slots=True)
class Commit:
    hash: str
    time_s: int
    author: str
    subject: str


def ignore(warning: str) -> None:
    """For callers who do not want to be told."""


@dataclass(frozen=True, slots=True)
class Repository:
    """*root* is the top of the working tree (or the bare repository), *head* the last commit."""

    root: Path
    head: str | None
    is_bare: bool

    @property
    def name(self) -> str:
        return os.fsencode(self.root.name.removesuffix(".git") or "root").decode("utf-8", "replace")


def open_repository(path: Path) -> Repository:
    """
    The repository that *path* lies in; its head is fixed here, whatever is committed later.

    Raises:
        NoRepository: no folder, no repository, or no git on this machine.
    """
    if not path.is_dir():
        raise NoRepository(f"{path} is not a folder")
    is_bare = _git(path, "rev-parse", "--is-bare-repository").strip() == b"true"
    where = "--absolute-git-dir" if is_bare else "--show-toplevel"
    root = Path(os.fsdecode(_git(path, "rev-parse", where).removesuffix(b"\n")))
    head = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    return Repository(root, head.stdout.decode().strip() or None, is_bare)


class Names:
    """Which paths can be ids. Warns of the first that cannot, and only of that."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._warned = False

    def decoded(self, path: bytes) -> str | None:
        """*path* as text, None when it cannot be an id."""
        try:
            text = path.decode()
        except UnicodeDecodeError:
            self._skip(path, "not UTF-8")
            return None
        if len(path) > limits.ID_BYTES_MAX:
            self._skip(path, f"longer than {limits.ID_BYTES_MAX} bytes")
            return None
        return text

    def _skip(self, path: bytes, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"left out: {path!r} ({why}), and any other name like it")


def history(
    repo: Path | Repository, *, warn: Warn = ignore
) -> Iterator[tuple[Commit, list[Operation]]]:
    """
    Each commit of the first-parent line, oldest first, with what it did to files.

    A merge is told as the difference to its first parent, a renamed file as deleted and
    inserted. Nothing for a repository without a commit.

    Raises:
        NoRepository: see `open_repository`; or git failed on the way.
    """
    found = open_repository(repo) if isinstance(repo, Path) else repo
    if found.head is None:
        return
    names = Names(warn)
    for commit, changes in _commits(_log(found)):
        operations = []
        for old_mode, new_mode, blob, path in changes:
            event = _event(old_mode, new_mode)
            name = names.decoded(path) if event else None
            if event and name is not None:
                operations.append(_committed(found, commit, event, name, blob))
        yield commit, operations


def files(repo: Repository, *, warn: Warn = ignore) -> dict[str, str]:
    """The files of the head and their blobs: what the fold of `history` holds."""
    if repo.head is None:
        return {}
    names = Names(warn)
    found: dict[str, str] = {}
    for entry in _split(_git(repo.root, "ls-tree", "-r", "-z", "--full-tree", repo.head)):
        about, _, path = entry.partition(b"\t")
        mode, _, blob = about.decode().split(" ")
        name = names.decoded(path) if mode not in _NO_FILE else None
        if name is not None:
            found[name] = blob
    return found


class WorkingTree:
    """The files on disk, tracked or untracked but not ignored, compared again and again."""

    def __init__(self, repo: Repository, *, warn: Warn = ignore) -> None:
        self._repo = repo
        self._names = Names(warn)
        self._blobs = files(repo)
        self._marks: dict[str, tuple[int, ...]] = {}

    def changes(self) -> list[Operation]:
        """
        What changed on disk since the last call; the first one compares with the head.

        Raises:
            NoRepository: git failed.
        """
        marks = self._scan()
        fresh = [name for name, mark in marks.items() if self._marks.get(name) != mark]
        if not self._marks:
            fresh = self._unlike_head(fresh)
        blobs = self._hashed(fresh)
        operations = []
        for name in [name for name in self._blobs if name not in marks]:
            del self._blobs[name]
            operations.append(self._seen("delete", name, None))
        for name, blob in blobs.items():
            before = self._blobs.get(name)
            if blob != before:
                self._blobs[name] = blob
                operations.append(self._seen("update" if before else "insert", name, blob))
        # A file that vanished before it could be hashed is looked at again.
        self._marks = {name: mark for name, mark in marks.items() if name in self._blobs}
        return operations

    def _scan(self) -> dict[str, tuple[int, ...]]:
        """A mark for each file that changes when the file does."""
        listed = _git(self._repo.root, "ls-files", "-z", "-c", "-o", "--exclude-standard")
        marks: dict[str, tuple[int, ...]] = {}
        for path in _split(listed):
            try:
                status = os.lstat(os.path.join(os.fsencode(self._repo.root), path))
            except OSError:
                continue
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                continue
            name = self._names.decoded(path)
            if name is not None:
                marks[name] = (status.st_mtime_ns, status.st_size, status.st_mode, status.st_ino)
        return marks

    def _unlike_head(self, names: Sequence[str]) -> list[str]:
        """Those git itself does not know to be as in the head: the others need no reading."""
        if self._repo.head is None:
            return list(names)
        changed = _git(
            self._repo.root,
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--no-relative",
            "--no-ext-diff",
            self._repo.head,
        )
        unlike = {os.fsdecode(path) for path in _split(changed)}
        return [name for name in names if name in unlike or name not in self._blobs]

    def _hashed(self, names: Sequence[str]) -> dict[str, str]:
        blobs: dict[str, str] = {}
        regular = []
        for name in names:
            path = self._repo.root / name
            if path.is_symlink():  # git keeps where it points to, not what is there
                blobs |= self._hashed_link(name, path)
            else:
                regular.append(name)
        for at in range(0, len(regular), _HASHED_AT_ONCE):
            blobs |= self._hashed_together(regular[at : at + _HASHED_AT_ONCE])
        return blobs

    def _hashed_link(self, name: str, path: Path) -> dict[str, str]:
        try:
            target = os.fsencode(os.readlink(path))
        except OSError:
            return {}
        hashed = _git(self._repo.root, "hash-object", "--stdin", stdin=target)
        return {name: hashed.decode().strip()}

    def _hashed_together(self, names: Sequence[str]) -> dict[str, str]:
        """One file that vanished fails all of them; then each is tried by itself."""
        try:
            hashed = _git(self._repo.root, "hash-object", "--", *names).decode().split()
        except NoRepository:
            if len(names) == 1:
                return {}
            return {k: v for name in names for k, v in self._hashed_together([name]).items()}
        return dict(zip(names, hashed, strict=True))

    def _seen(self, event: str, name: str, blob: str | None) -> Operation:
        data = {"message": "working tree", **({"blob": blob} if blob else {})}
        return _operation(event, name, _parents(self._repo, name), data)


def _event(old_mode: str, new_mode: str) -> str | None:
    """From no file to a file, and so on; a submodule is none."""
    return {
        (False, True): "insert",
        (True, True): "update",
        (True, False): "delete",
    }.get((old_mode not in _NO_FILE, new_mode not in _NO_FILE))


def _committed(repo: Repository, commit: Commit, event: str, name: str, blob: str) -> Operation:
    parents = _parents(repo, name)
    if commit.author:
        parents.append(f"author/{commit.author}")
    data = {"commit": commit.hash[:12], "message": commit.subject}
    if event != "delete":
        data["blob"] = blob
    made = _operation(event, name, parents, data)
    moment = _timestamp(commit.time_s)
    return {**made, "timestamp": moment} if moment else made


def _operation(event: str, name: str, parents: list[str], data: dict[str, str]) -> Operation:
    return {"event": event, "type": "file", "id": name, "parents": parents, "data": data}


def _parents(repo: Repository, name: str) -> list[str]:
    return [f"repo/{repo.name}", f"dir/{posixpath.dirname(name) or '.'}"]


def _timestamp(time_s: int) -> str | None:
    """A date that no calendar has (some commits carry one) is left out."""
    try:
        return timestamps.from_ms(time_s * 1000)
    except OverflowError:
        return None


def _commits(tokens: Iterator[bytes]) -> Iterator[tuple[Commit, list[tuple[str, str, str, bytes]]]]:
    """The fields of `git log -z`: four of a header, then mode-and-blob and path of each file."""
    commit: Commit | None = None
    changes: list[tuple[str, str, str, bytes]] = []
    for token in tokens:
        token = token.lstrip(b"\n")
        if token.startswith(b":"):
            old_mode, new_mode, _, blob, _ = token[1:].decode().split(" ")
            changes.append((old_mode, new_mode, blob, next(tokens)))
        elif token:
            if commit:
                yield commit, changes
            commit, changes = _header(token, next(tokens), next(tokens), next(tokens)), []
    if commit:
        yield commit, changes


def _header(commit_hash: bytes, time_s: bytes, author: bytes, subject: bytes) -> Commit:
    longest = limits.PARENT_BYTES_MAX - len("author/")
    return Commit(
        commit_hash.decode(),
        int(time_s),
        author.decode("utf-8", "replace").encode()[:longest].decode("utf-8", "ignore"),
        subject.decode("utf-8", "replace")[:_SUBJECT_CHARS_MAX],
    )


def _log(repo: Repository) -> Iterator[bytes]:
    """Its fields as they come: a long history is never held as a whole."""
    command = [
        "git", "-c", "log.showSignature=false", "log", "--first-parent", "-m", "--raw", "-r", "-z",
        "--no-renames", "--reverse", "--root", "--no-abbrev", "--no-relative", "--no-ext-diff",
        "--ignore-submodules=none", "--encoding=UTF-8", f"--format=tformat:{_HEADER}",
        str(repo.head), "--",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=repo.root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        rest = b""
        while chunk := process.stdout.read(_READ_BYTES):
            *whole, rest = (rest + chunk).split(b"\0")
            yield from whole
    if process.returncode:
        raise NoRepository(f"git log failed in {repo.root} ({process.returncode})")


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            # Without locks: whoever works in the repository is not disturbed.
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            input=stdin,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise NoRepository(
            "git is not installed here, and the demo reads a git repository"
        ) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise NoRepository(f"{folder}: {said.removeprefix('fatal: ') or 'git failed'}")
    return done.stdout


def _split(listed: bytes) -> list[bytes]:
    return listed.split(b"\0")[:-1]
