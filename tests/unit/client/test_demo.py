"""The demo: the history of a repository as operations, then its working tree."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.oplog.wire import until
from tests.unit.client.fake_feed import Running
from tidings.client.demo import (
    CHUNK_OPERATIONS,
    NoRepository,
    RateLimit,
    WorkingTree,
    history,
    invented_operations,
    open_repository,
    post_history,
)
from tidings.client.poster import Poster
from tidings.core.model import timestamps

WITHIN_S = 180.0
NAMES = ["a b.txt", "new\nline", "\nfirst", "é/ü.txt", ":100644 100644", "tab\t", '"quoted"', "-x",
         "deep/er/file", "deep/other", "😀", "back\\slash", "*.py"]  # fmt: skip


class Repo:
    """A repository in a folder of the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str | bytes) -> bytes:
        settings = ["user.name=A Uthor", "user.email=a@example.org", "protocol.file.allow=always"]
        options = [part for setting in settings for part in ("-c", setting)]
        return subprocess.run(
            ["git", *options, *arguments], cwd=self.root, capture_output=True, check=True
        ).stdout

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def commit(self, message: str = "change") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def tree(self) -> dict[str, str]:
        found = {}
        for entry in self.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]:
            about, _, path = entry.partition(b"\t")
            found[os.fsdecode(path)] = about.decode().split(" ")[2]
        return found


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def _fold(operations: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Strictly: an insert is of a new file, an update and a delete of one that is there."""
    objects: dict[str, str] = {}
    for operation in operations:
        assert (operation["event"] == "insert") == (operation["id"] not in objects)
        if operation["event"] == "delete":
            del objects[operation["id"]]
        else:
            objects[operation["id"]] = operation["data"]["blob"]
    return objects


def _all(repo: Repo, **options: Any) -> Iterator[dict[str, Any]]:
    for _, operations in history(repo.root, **options):
        yield from operations


def test_one_commit(repo: Repo) -> None:
    """What an operation carries."""
    repo.write("src/a.py", "1\n")
    repo.commit("the subject\n\nthe body")
    [(commit, [operation])] = history(repo.root)

    assert operation == {
        "event": "insert",
        "type": "file",
        "id": "src/a.py",
        "parents": ["repo/repo", "dir/src", "author/A Uthor"],
        "timestamp": timestamps.from_ms(commit.time_s * 1000),
        "data": {
            "commit": commit.hash[:12],
            "message": "the subject",
            "blob": "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d",
        },
    }


def test_the_fold_of_odd_names(repo: Repo) -> None:
    """Spaces, newlines, quotes, colons and non-ASCII; deleted, added again, renamed, chmod."""
    for name in NAMES:
        repo.write(name, f"{name}\n" * 20)
    repo.commit()
    for name in NAMES[::2]:
        (repo.root / name).unlink()
    repo.commit("delete")
    repo.write(NAMES[0], "again")
    repo.git("mv", "--", NAMES[1], "re\nnamed")
    (repo.root / NAMES[3]).chmod(0o755)
    repo.commit("again")
    (repo.root / "é").rename(repo.root / "dir")
    (repo.root / "link").symlink_to("nowhere")
    repo.commit("link")

    assert _fold(_all(repo)) == repo.tree()


def test_the_fold_of_merges(repo: Repo) -> None:
    """Each merge is compared with its first parent; the operations end at the files of the head."""
    repo.write("base", "0")
    repo.commit()
    for round_ in range(3):
        repo.git("checkout", "-q", "-b", f"side{round_}")
        repo.write(f"side{round_}", "s")
        repo.write("base", f"round {round_}")
        repo.commit()
        repo.git("checkout", "-q", "main")
        repo.write(f"main{round_}", "m")
        repo.commit()
        repo.git("merge", "-q", "--no-ff", "-m", "merge", f"side{round_}")

    assert [len(operations) for _, operations in history(repo.root)] == [1, 1, 2, 1, 2, 1, 2]
    assert _fold(_all(repo)) == repo.tree()


def test_submodules_are_no_files(repo: Repo, tmp_path: Path) -> None:
    """A submodule is left out; a file that becomes one is deleted."""
    other = Repo(tmp_path / "other")
    other.write("x", "x")
    other.commit()
    repo.write("lib", "a file")
    repo.commit()
    (repo.root / "lib").unlink()
    repo.git("rm", "-q", "--cached", "lib")
    repo.git("submodule", "--quiet", "add", str(other.root), "lib")
    repo.commit()
    expected = repo.tree()
    del expected["lib"]

    assert _fold(_all(repo)) == expected
    assert WorkingTree(open_repository(repo.root)).changes() == []


def test_names_that_cannot_be_ids(repo: Repo) -> None:
    """Names that are not UTF-8 or too long are left out, with one warning for all of them."""
    root = os.fsencode(repo.root)
    for name in (b"\xff", b"\xfe\xff", b"x" * 250 + b"/" + b"y" * 250 + b"/" + b"z" * 20):
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "w") as file:
            file.write("x")
    repo.write("good", "x")
    repo.commit()
    warnings: list[str] = []

    assert [op["id"] for op in _all(repo, warn=warnings.append)] == ["good"]
    assert len(warnings) == 1
    assert "left out" in warnings[0]


def test_the_user_s_settings_change_nothing(repo: Repo) -> None:
    """Settings that change what git prints are overruled."""
    for setting in ("log.showSignature=true", "diff.renames=copies", "diff.noprefix=true",
                    "log.showRoot=false", "diff.relative=true", "log.diffMerges=combined",
                    "diff.ignoreSubmodules=all", "core.abbrev=4", "color.ui=always",
                    "log.decorate=full", "core.quotePath=true", "log.date=relative",
                    "diff.external=false", "diff.orderFile=/dev/null"):  # fmt: skip
        name, _, value = setting.partition("=")
        repo.git("config", name, value)
    repo.write("sub/a", "same\n" * 50)
    repo.commit()
    repo.git("mv", "sub/a", "sub/b")
    repo.commit()

    assert [op["event"] for op in _all(repo)] == ["insert", "delete", "insert"]
    assert _fold(op for _, ops in history(repo.root / "sub") for op in ops) == repo.tree()
    assert WorkingTree(open_repository(repo.root / "sub")).changes() == []


def test_no_repository(tmp_path: Path) -> None:
    """One sentence each."""
    with pytest.raises(NoRepository, match="not a git repository"):
        next(history(tmp_path))
    with pytest.raises(NoRepository, match="is not a folder"):
        next(history(tmp_path / "none"))


def test_no_git(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(NoRepository, match="git is not installed"):
        next(history(repo.root))


def test_an_empty_repository(repo: Repo) -> None:
    """Without a commit the history is empty; the files of the folder are inserted."""
    repo.write("a", "1\n")
    tree = WorkingTree(open_repository(repo.root))

    assert list(history(repo.root)) == []
    assert [(op["event"], op["id"]) for op in tree.changes()] == [("insert", "a")]


def test_the_working_tree(repo: Repo) -> None:
    """After the history, the fold is what is on disk, whatever happens there."""
    repo.write(".gitignore", "ignored\n")
    for name in NAMES:
        repo.write(name, name)
    repo.commit()
    repo.write("uncommitted", "1")
    repo.write("ignored", "1")
    repo.write(NAMES[0], "changed")
    (repo.root / NAMES[1]).unlink()
    operations = list(_all(repo))
    tree = WorkingTree(open_repository(repo.root))

    def look() -> list[tuple[str, str]]:
        found = tree.changes()
        operations.extend(found)
        return sorted((op["event"], op["id"]) for op in found)

    assert look() == [("delete", NAMES[1]), ("insert", "uncommitted"), ("update", NAMES[0])]
    assert look() == []
    repo.write("uncommitted", "22")
    (repo.root / "link").symlink_to("uncommitted")
    repo.git("mv", NAMES[3], "moved")
    os.utime(repo.root / NAMES[6])
    assert look() == [
        ("delete", NAMES[3]), ("insert", "link"), ("insert", "moved"), ("update", "uncommitted"),
    ]  # fmt: skip
    repo.commit("nothing changes on disk")
    assert look() == []
    assert _fold(operations) == repo.tree()


def test_started_again_it_posts_nothing_twice(server: Running, repo: Repo) -> None:
    """P4.5: each piece of a commit has a key of its own, whatever the rate."""
    for number in range(CHUNK_OPERATIONS + 1):
        repo.write(f"f{number}", "x")
    repo.commit()
    for rate in (0, 1e6):
        with Poster(server.url) as poster:
            assert post_history(poster, history(repo.root), RateLimit(rate)) == CHUNK_OPERATIONS + 1

    assert [len(page) for page in server.feed.pages] == [CHUNK_OPERATIONS, 1]


def test_the_pace() -> None:
    """50 a second are 50 a second; 0 does not wait; time lost is not made up for in a burst."""
    now_s, waits = 0.0, []

    def wait(delay_s: float) -> None:
        nonlocal now_s
        waits.append(round(delay_s, 6))
        now_s += delay_s

    rate_limit = RateLimit(50, wait, lambda: now_s)
    rate_limit.throttle(100)
    rate_limit.throttle(1)
    now_s += 60
    rate_limit.throttle(100)
    assert waits == [2.0, 0.02, 1.0]

    RateLimit(0, wait, lambda: now_s).throttle(1000)
    assert len(waits) == 3


def test_the_command(server: Running, repo: Repo) -> None:
    """History, then live changes, then Ctrl-C with exit code 0."""
    repo.write("a", "1")
    repo.commit()
    command = [sys.executable, "-m", "tidings.client.demo", "--url", server.url, "--rate", "0"]
    with subprocess.Popen([*command, "--repo", str(repo.root)], stdout=subprocess.PIPE) as process:
        try:
            until(lambda: len(server.feed.pages) == 1)
            assert process.stdout is not None
            assert process.stdout.readline() == b"the history of repo: 1 operations\n"
            repo.write("b", "2")
            until(lambda: len(server.feed.pages) == 2)
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
    assert [op["id"] for page in server.feed.pages for op in page] == ["a", "b"]


def test_the_command_without_a_repository(tmp_path: Path) -> None:
    """Exit code 1, one sentence, no traceback."""
    command = [sys.executable, "-m", "tidings.client.demo", "--repo", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)

    assert found.returncode == 1
    assert b"not a git repository" in found.stderr
    assert found.stderr.count(b"\n") == 1


def test_without_a_repository_something_is_made_up(server: Running) -> None:
    """Posted one by one until Ctrl-C, which ends it with exit code 0."""
    command = [sys.executable, "-m", "tidings.client.demo", "--url", server.url, "--made-up"]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: len(server.feed.pages) >= 2)
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
    assert server.feed.pages[0][0]["event"] == "insert"


def test_what_is_made_up_could_have_happened() -> None:
    """Only living objects are changed or deleted, none is inserted twice, and there are never
    many."""
    living: set[str] = set()
    for operation in itertools.islice(invented_operations(), 2_000):
        if operation["event"] == "insert":
            assert operation["id"] not in living
            living.add(operation["id"])
        assert operation["id"] in living
        if operation["event"] == "delete":
            living.remove(operation["id"])
        assert len(living) <= 40
