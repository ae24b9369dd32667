"""
Read a git repository as operations on files: its history, and changes of its working tree.

The object is a path, of type `file`. The operations of `history` fold into exactly the files of the
head, and with those of `WorkingTree` into the files on disk. Submodules are skipped, as are names
that are not UTF-8 or longer than an id may be.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tidings.core import limits
from tidings.core.model import timestamps

Operation = dict[str, Any]
Warn = Callable[[str], None]
_HEADER = "%H%x00%ct%x00%an%x00%s%x00"
_READ_BYTES = 64 * 1024
_SUBJECT_CHARS_MAX = 200  # a message is shown on one line
_NO_FILE = ("000000", "160000")  # a missing file, and a submodule
# Options that make the comparison independent of the user's settings.
_COMPARED = (
    *("--raw", "-r", "-z", "--no-renames", "--no-abbrev", "--no-relative", "--no-ext-diff"),
    "--ignore-submodules=none",
)


class NoRepository(Exception):
    """The history cannot be read; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Commit:
    hash: str
    time_s: int
    author: str
    subject: str


class Change(NamedTuple):
    """A path that differs between two trees, as `git diff --raw` prints it."""

    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str
    path: bytes

    @property
    def event(self) -> str | None:
        """Return the event; None if neither side is a file, but a submodule."""
        was, is_now = self.old_mode not in _NO_FILE, self.new_mode not in _NO_FILE
        if was:
            return "update" if is_now else "delete"
        return "insert" if is_now else None


def ignore(warning: str) -> None:
    """Ignore a warning."""


@dataclass(frozen=True, slots=True)
class Repository:
    """
    A repository: *root* is the top of its working tree, or a bare one; *head* the last commit.
    """

    root: Path
    head: str | None
    is_bare: bool

    @property
    def name(self) -> str:
        return os.fsencode(self.root.name.removesuffix(".git") or "root").decode("utf-8", "replace")


def open_repository(path: Path) -> Repository:
    """
    Return the repository that contains *path*. Its head stays fixed when commits are added.

    Raises:
        NoRepository: the folder, the repository or git on this machine is missing.
    """
    if not path.is_dir():
        raise NoRepository(f"{path} is not a folder")
    is_bare = _git(path, "rev-parse", "--is-bare-repository").strip() == b"true"
    where = "--absolute-git-dir" if is_bare else "--show-toplevel"
    root = Path(os.fsdecode(_git(path, "rev-parse", where).removesuffix(b"\n")))
    head = _git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False)
    return Repository(root, head.decode().strip() or None, is_bare)


class Names:
    """A check of paths for use as ids. It warns only of the first invalid path."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._warned = False

    def decoded(self, path: bytes) -> str | None:
        """Return *path* as text, None if it cannot be an id."""
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
    Yield each commit of the first-parent line, oldest first, with its operations on files.

    A merge is the difference to its first parent. A renamed file is deleted and inserted. A
    repository without a commit yields nothing.

    Raises:
        NoRepository: see `open_repository`; or git failed.
    """
    opened = open_repository(repo) if isinstance(repo, Path) else repo
    if opened.head is None:
        return
    names = Names(warn)
    for commit, changes in _commits(_log(opened)):
        operations = []
        for change in changes:
            if change.event and (name := names.decoded(change.path)) is not None:
                operations.append(_committed(opened, commit, change, name))
        yield commit, operations


class WorkingTree:
    """
    The files on disk, tracked or untracked but not ignored, compared repeatedly.

    For each comparison git writes them as a tree, with an index and an object store in a temporary
    folder. It only reads those of the repository.
    """

    def __init__(self, repo: Repository, *, warn: Warn = ignore) -> None:
        self._repo, self._names = repo, Names(warn)
        self._folder = tempfile.TemporaryDirectory(prefix="tidings-")
        index, objects = (self._in_repository(name) for name in ("index", "objects"))
        own = Path(self._folder.name)
        self._settings = ("env", f"GIT_INDEX_FILE={own / 'index'}", f"GIT_OBJECT_DIRECTORY={own}")
        (own / "info").mkdir()
        (own / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
        if os.path.exists(index):  # an index saves git from reading files that equal the head
            # Copy its time, too: git also reads a file that was changed in the second of its index.
            shutil.copy2(index, own / "index")
        self._tree = f"{repo.head}^{{tree}}" if repo.head else self._git("mktree").decode().strip()

    def changes(self) -> list[Operation]:
        """
        Return the changes on disk since the last call; the first call compares with the head.

        Raises:
            NoRepository: git failed.
        """
        self._git("add", "--all", "--ignore-errors", check=False)  # a file may be gone
        before, self._tree = self._tree, self._git("write-tree").decode().strip()
        listed = self._git("diff-tree", *_COMPARED, before, self._tree)
        compared = iter(listed.split(b"\0")[:-1])
        operations = []
        for entry in compared:
            change = _change(entry, next(compared))
            name = self._names.decoded(change.path) if change.event else None
            if change.event and name is not None and change.old_blob != change.new_blob:
                blob = {} if change.event == "delete" else {"blob": change.new_blob}
                data = {"message": "working tree", **blob}
                operations.append(_operation(change.event, name, _parents(self._repo, name), data))
        return operations

    def _git(self, *arguments: str, check: bool = True) -> bytes:
        return _git(self._repo.root, *arguments, settings=self._settings, check=check)

    def _in_repository(self, name: str) -> str:
        path = _git(self._repo.root, "rev-parse", "--git-path", name).removesuffix(b"\n")
        return os.path.join(self._repo.root, os.fsdecode(path))


def _committed(repo: Repository, commit: Commit, change: Change, name: str) -> Operation:
    parents = _parents(repo, name)
    if commit.author:
        parents.append(f"author/{commit.author}")
    data = {"commit": commit.hash[:12], "message": commit.subject}
    if change.event != "delete":
        data["blob"] = change.new_blob
    operation = _operation(str(change.event), name, parents, data)
    moment = _timestamp(commit.time_s)
    return {**operation, "timestamp": moment} if moment else operation


def _operation(event: str, name: str, parents: list[str], data: dict[str, str]) -> Operation:
    return {"event": event, "type": "file", "id": name, "parents": parents, "data": data}


def _parents(repo: Repository, name: str) -> list[str]:
    return [f"repo/{repo.name}", f"dir/{posixpath.dirname(name) or '.'}"]


def _timestamp(time_s: int) -> str | None:
    """Return the time; None if it is outside of the calendar, as in some commits."""
    try:
        return timestamps.from_ms(time_s * 1000)
    except OverflowError:
        return None


def _commits(tokens: Iterator[bytes]) -> Iterator[tuple[Commit, list[Change]]]:
    """Parse `git log -z`: four fields of a header, then mode-and-blob and path of each file."""
    commit: Commit | None = None
    changes: list[Change] = []
    for token in tokens:
        token = token.lstrip(b"\n")
        if token.startswith(b":"):
            changes.append(_change(token, next(tokens)))
        elif token:
            if commit:
                yield commit, changes
            commit, changes = _header(token, next(tokens), next(tokens), next(tokens)), []
    if commit:
        yield commit, changes


def _change(entry: bytes, path: bytes) -> Change:
    old_mode, new_mode, old_blob, new_blob, _ = entry[1:].decode().split(" ")
    return Change(old_mode, new_mode, old_blob, new_blob, path)


def _header(commit_hash: bytes, time_s: bytes, author: bytes, subject: bytes) -> Commit:
    longest = limits.PARENT_BYTES_MAX - len("author/")
    return Commit(
        commit_hash.decode(),
        int(time_s),
        author.decode("utf-8", "replace").encode()[:longest].decode("utf-8", "ignore"),
        subject.decode("utf-8", "replace")[:_SUBJECT_CHARS_MAX],
    )


def _log(repo: Repository) -> Iterator[bytes]:
    """Yield the fields as they are read, to bound the memory for a long history."""
    command = [
        "git", "-c", "log.showSignature=false", "log", "--first-parent", "-m", *_COMPARED,
        "--reverse", "--root", "--encoding=UTF-8", f"--format=tformat:{_HEADER}",
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


def _git(folder: Path, *arguments: str, settings: Sequence[str] = (), check: bool = True) -> bytes:
    try:
        done = subprocess.run(
            # Without locks, so as not to block other processes that use the repository.
            [*settings, "git", "--no-optional-locks", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise NoRepository(
            "git is not installed here, and the demo reads a git repository"
        ) from None
    if check and done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise NoRepository(f"{folder}: {reason.removeprefix('fatal: ') or 'git failed'}")
    return done.stdout
