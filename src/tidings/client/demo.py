"""Post a git repository to a feed, as a demo.

    python -m tidings.client.demo --url http://127.0.0.1:8042 --repo . --rate 50

The demo posts the history commit by commit, oldest first, then changes on disk. Each path is an
object of type `file`. The operations of `history` result in exactly the files of the head commit.
These operations, followed by those of `WorkingTree`, result in the files on disk. Submodules are
skipped, and so are files with a name that is not UTF-8 or longer than an id may be.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from tidings.client.address import DEFAULT_URL
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.render import retry_reporter
from tidings.client.errors import ClientError
from tidings.client.poster import Poster, encode
from tidings.core import limits
from tidings.core.model import timestamps

Operation = dict[str, Any]
Warn = Callable[[str], None]

# The maximum of operations per request. A larger commit is split, to show progress. The maximum is
# independent of the rate, because a restart with another rate must post the same chunks.
CHUNK_OPERATIONS = 100
LOOK_EVERY_S = 1.0
MADE_UP_EVERY_S = 0.5  # slow enough that a person can read the events
_READ_BYTES = 64 * 1024
_SUBJECT_CHARS_MAX = 200  # a message is shown on one line
_NO_FILE = ("000000", "160000")  # the modes of a missing file and of a submodule
# Options that make the comparison independent of the user's settings.
_COMPARED = (
    *("--raw", "-r", "-z", "--no-renames", "--no-abbrev", "--no-relative", "--no-ext-diff"),
    "--ignore-submodules=none",
)
_LOG = (
    *("-c", "log.showSignature=false", "log", "--first-parent", "-m", *_COMPARED, "--reverse"),
    *("--root", "--encoding=UTF-8", "--format=tformat:%H%x00%ct%x00%an%x00%s%x00"),
)
_PEOPLE = ("ann", "ben", "cleo", "dev", "eva", "finn")
_SUBJECTS = ("harbour", "kitchen", "mountain", "night", "orchestra", "river", "street", "workshop")
_LIVING_MAX = 40  # maximum of objects at the same time; few enough for a list on the screen


class NoRepository(Exception):
    """The history cannot be read; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Commit:
    hash: str
    time_s: int
    author: str
    subject: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository; *root* is the working tree or bare repository; *head* is a commit."""

    root: Path
    head: str | None
    is_bare: bool

    @property
    def name(self) -> str:
        return os.fsencode(self.root.name.removesuffix(".git") or "root").decode("utf-8", "replace")


def open_repository(path: Path) -> Repository:
    """Return the repository that contains *path*, with its present head.

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


def history(
    repo: Path | Repository, *, warn: Warn = lambda warning: None
) -> Iterator[tuple[Commit, list[Operation]]]:
    """Yield each commit of the first-parent line, oldest first, with its operations on files.

    The operations of a merge are its differences to its first parent. A renamed file is deleted and
    inserted. A repository without a commit yields nothing. *warn* is called for the first file that
    is skipped because of its name.

    Raises:
        NoRepository: see `open_repository`; or git failed.
    """
    opened = open_repository(repo) if isinstance(repo, Path) else repo
    if opened.head is None:
        return
    reader = _RawReader(opened, warn)
    tokens = _log(opened)
    commit: Commit | None = None
    operations: list[Operation] = []
    for token in tokens:
        token = token.lstrip(b"\n")
        if token.startswith(b":"):
            operations += reader.operations(token, next(tokens), commit)
        elif token:
            if commit:
                yield commit, operations
            commit, operations = _commit(token, next(tokens), next(tokens), next(tokens)), []
    if commit:
        yield commit, operations


class WorkingTree:
    """The files on disk that git tracks or does not ignore, compared repeatedly.

    For each comparison, git writes the files as a tree, with an index and an object store in a
    temporary folder. The index and the object store of the repository are only read.
    """

    def __init__(self, repo: Repository, *, warn: Warn = lambda warning: None) -> None:
        self._repo, self._reader = repo, _RawReader(repo, warn)
        self._folder = tempfile.TemporaryDirectory(prefix="tidings-")
        index, objects = (self._in_repository(name) for name in ("index", "objects"))
        own = Path(self._folder.name)
        self._settings = ("env", f"GIT_INDEX_FILE={own / 'index'}", f"GIT_OBJECT_DIRECTORY={own}")
        (own / "info").mkdir()
        (own / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
        # With a copy of the index, git need not read files that equal the head. The copy also has
        # the time of the index, because git reads files that changed in the same second or later.
        if os.path.exists(index):
            shutil.copy2(index, own / "index")
        self._tree = f"{repo.head}^{{tree}}" if repo.head else self._git("mktree").decode().strip()

    def changes(self) -> list[Operation]:
        """Return the changes on disk since the last call; the first call compares with the head.

        Raises:
            NoRepository: git failed.
        """
        self._git("add", "--all", "--ignore-errors", check=False)  # a file may have been deleted
        before, self._tree = self._tree, self._git("write-tree").decode().strip()
        listed = iter(self._git("diff-tree", *_COMPARED, before, self._tree).split(b"\0")[:-1])
        return [
            operation
            for entry in listed
            for operation in self._reader.operations(entry, next(listed), None)
        ]

    def _git(self, *arguments: str, check: bool = True) -> bytes:
        return _git(self._repo.root, *arguments, settings=self._settings, check=check)

    def _in_repository(self, name: str) -> str:
        path = _git(self._repo.root, "rev-parse", "--git-path", name).removesuffix(b"\n")
        return os.path.join(self._repo.root, os.fsdecode(path))


class _RawReader:
    """A parser of the files that `git log --raw -z` and `git diff-tree --raw -z` list."""

    def __init__(self, repo: Repository, warn: Warn) -> None:
        self._repo, self._warn = repo, warn
        self._warned = False

    def operations(self, entry: bytes, path: bytes, commit: Commit | None) -> Iterator[Operation]:
        """Yield the operation for *path*, if it is a file with a valid name that changed."""
        old_mode, new_mode, old_blob, new_blob, _ = entry[1:].decode().split(" ")
        was, is_now = old_mode not in _NO_FILE, new_mode not in _NO_FILE
        if not (was or is_now) or (name := self._name(path)) is None:
            return
        if commit is None and old_blob == new_blob:  # only the mode changed on disk
            return
        parents = [f"repo/{self._repo.name}", f"dir/{posixpath.dirname(name) or '.'}"]
        data = {"message": "working tree"}
        if commit:
            data = {"commit": commit.hash[:12], "message": commit.subject}
            parents += [f"author/{commit.author}"] if commit.author else []
        if is_now:
            data["blob"] = new_blob
        event = ("update" if was else "insert") if is_now else "delete"
        when = _timestamp(commit.time_s) if commit else {}
        what = {"event": event, "type": "file", "id": name, "parents": parents, "data": data}
        yield what | when

    def _name(self, path: bytes) -> str | None:
        """Return *path* as text; if it cannot be an id, warn once and return None."""
        try:
            text = path.decode()
            why = f"longer than {limits.ID_BYTES_MAX} bytes"
        except UnicodeDecodeError:
            text, why = "", "not UTF-8"
        if text and len(path) <= limits.ID_BYTES_MAX:
            return text
        if not self._warned:
            self._warned = True
            self._warn(f"left out: {path!r} ({why}), and all other files with such a name")
        return None


def _timestamp(time_s: int) -> dict[str, str]:
    """Return the field with the time; {} for a time outside of the calendar, as in some commits."""
    try:
        return {"timestamp": timestamps.from_ms(time_s * 1000)}
    except OverflowError:
        return {}


def _commit(commit_hash: bytes, time_s: bytes, author: bytes, subject: bytes) -> Commit:
    longest = limits.PARENT_BYTES_MAX - len("author/")
    return Commit(
        commit_hash.decode(),
        int(time_s),
        author.decode("utf-8", "replace").encode()[:longest].decode("utf-8", "ignore"),
        subject.decode("utf-8", "replace")[:_SUBJECT_CHARS_MAX],
    )


def _log(repo: Repository) -> Iterator[bytes]:
    """Yield the fields of `git log -z` as they are read, to bound the memory for a long history.

    A commit has four fields, then two for each file: its modes and blobs, and its path.
    """
    command = ["git", *_LOG, str(repo.head), "--"]
    with subprocess.Popen(command, cwd=repo.root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        rest = b""
        while chunk := process.stdout.read(_READ_BYTES):
            *complete, rest = (rest + chunk).split(b"\0")
            yield from complete
    if process.returncode:
        raise NoRepository(f"git log failed in {repo.root} ({process.returncode})")


def _git(folder: Path, *arguments: str, settings: Sequence[str] = (), check: bool = True) -> bytes:
    # Do not lock the repository, so that other processes are not blocked.
    command = [*settings, "git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise NoRepository(
            "git is not installed here, and the demo reads a git repository"
        ) from None
    if check and done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise NoRepository(f"{folder}: {reason.removeprefix('fatal: ') or 'git failed'}")
    return done.stdout


def invented_operations(seed: int = 1) -> Iterator[Operation]:
    """Yield operations without end: videos that people upload, edit and delete.

    Each operation inserts an object, or updates or deletes an existing object.
    """
    chance = random.Random(seed)
    owners: dict[str, str] = {}
    number = 0
    while True:
        events = ["insert"] if len(owners) < _LIVING_MAX else []
        events += ["update", "update", "update", "delete"] if owners else []
        event = chance.choice(events)
        if event == "insert":
            number += 1
            video = f"{chance.choice(_SUBJECTS)}-{number}"
            owners[video] = chance.choice(_PEOPLE)
        else:
            video = chance.choice(list(owners))
        parents, data = [f"user/{owners[video]}"], {"views": chance.randrange(1_000)}
        yield {"event": event, "type": "video", "id": video, "parents": parents, "data": data}
        if event == "delete":
            del owners[video]


class RateLimit:
    """A limiter to *rate* operations a second; with 0, the rate is unlimited."""

    def __init__(
        self,
        rate: float,
        wait: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._wait = wait
        self._monotonic = monotonic
        self._due_s = monotonic()

    def throttle(self, count: int) -> None:
        """Count *count* operations, and wait as long as they take at the given rate."""
        if not self._rate:
            return
        now_s = self._monotonic()
        self._due_s = max(self._due_s, now_s - 1) + count / self._rate
        if self._due_s > now_s:
            self._wait(self._due_s - now_s)


def post_history(
    poster: Poster, commits: Iterable[tuple[Commit, list[Operation]]], rate_limit: RateLimit
) -> int:
    """Post the commits in chunks, each with an Idempotency-Key; return the operation count."""
    posted = 0
    for commit, operations in commits:
        for number, chunk in enumerate(_chunks(operations)):
            # The key depends on the content, because the operations of a commit contain the name of
            # the repository's folder.
            content = hashlib.sha256(b"\n".join(map(encode, chunk))).hexdigest()
            poster.post(chunk, key=f"git-{commit.hash}-{number}-{content[:16]}")
            posted += len(chunk)
            rate_limit.throttle(len(chunk))
    return posted


def _chunks(operations: list[Operation]) -> Iterator[list[Operation]]:
    for at in range(0, len(operations), CHUNK_OPERATIONS):
        yield operations[at : at + CHUNK_OPERATIONS]


def _follow(poster: Poster, repo: Repository) -> NoReturn:
    tree = WorkingTree(repo, warn=_warn)
    while True:
        operations = tree.changes()
        for chunk in _chunks(operations):
            poster.post(chunk)
        if operations:
            click.echo(f"{len(operations)} changed on disk")
        time.sleep(LOOK_EVERY_S)


def _post_generated(poster: Poster) -> None:
    for operation in invented_operations():
        poster.post([operation])
        time.sleep(MADE_UP_EVERY_S)


def _warn(warning: str) -> None:
    click.echo(warning, err=True)


@click.command(epilog=EXIT_CODES)
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of Tidings.")
@click.option("--feed", default="main", show_default=True, help="Name of the feed.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    default=Path("."),
    show_default=True,
    help="A git repository, or a folder in one.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=50.0,
    show_default=True,
    help="Operations per second of the history; 0: as fast as possible.",
)
@click.option("--once", is_flag=True, help="Stop after the history.")
@click.option("--made-up", is_flag=True, help="Post invented changes without end.")
def main(url: str, feed: str, repo: Path, rate: float, once: bool, made_up: bool) -> None:
    """Post the history of a git repository, oldest commit first, then the changes of files on disk.

    Each file is an object of type `file`; its parents are the repository, its folder and
    the author. If the demo is started again within a day, it posts nothing twice. Ctrl-C ends it.

    \b
    Example:
      python -m tidings.client.demo --repo ~/src/project --rate 200
    """
    # A process that a shell starts in the background ignores Ctrl-C, so accept the signal here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        repository = None if made_up else open_repository(repo)
        with Poster(url, feed, on_retry=retry_reporter()) as poster:
            if repository is None:
                return _post_generated(poster)
            count = post_history(poster, history(repository, warn=_warn), RateLimit(rate))
            click.echo(f"the history of {repository.name}: {count:,} operations")
            if not once and not repository.is_bare:
                click.echo("posting the changes on disk until Ctrl-C")
                _follow(poster, repository)
    except (NoRepository, ClientError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        pass  # Ctrl-C ends the demo


if __name__ == "__main__":
    main()
