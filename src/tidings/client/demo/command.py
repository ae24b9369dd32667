"""
Post a git repository to a feed, as a demo.

    python -m tidings.client.demo --url http://127.0.0.1:8042 --repo . --rate 50

It posts the history commit by commit, oldest first, then changes on disk.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from tidings.client.address import DEFAULT_URL
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.render import retrying
from tidings.client.demo.git_repository import (
    Commit,
    NoRepository,
    Operation,
    Repository,
    WorkingTree,
    history,
    open_repository,
)
from tidings.client.demo.made_up import operations as made_up_operations
from tidings.client.errors import ClientError
from tidings.client.produce.post import Poster, encode

__all__ = ["Commit", "history", "main", "post_history"]

CHUNK_OPERATIONS = 100  # splits a large commit, to show progress. It is independent of the rate:
# a restart with another rate must post the same chunks.
LOOK_EVERY_S = 1.0
MADE_UP_EVERY_S = 0.5  # slow enough to read
T = TypeVar("T")


class Pace:
    """A limiter to *rate* operations a second; 0 is unlimited."""

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

    def passed(self, count: int) -> None:
        """Count *count* operations and wait as long as they take at the rate."""
        if not self._rate:
            return
        now_s = self._monotonic()
        self._due_s = max(self._due_s, now_s - 1) + count / self._rate
        if self._due_s > now_s:
            self._wait(self._due_s - now_s)


def post_history(
    poster: Poster, commits: Iterable[tuple[Commit, list[Operation]]], pace: Pace
) -> int:
    """Post each commit under its own Idempotency-Key. Return the number of operations."""
    posted = 0
    for commit, operations in commits:
        for number, chunk in enumerate(_chunks(operations)):
            poster.post(chunk, key=_key(commit, number, chunk))
            posted += len(chunk)
            pace.passed(len(chunk))
    return posted


def _chunks(operations: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(operations), CHUNK_OPERATIONS):
        yield operations[at : at + CHUNK_OPERATIONS]


def _key(commit: Commit, number: int, chunk: list[dict[str, Any]]) -> str:
    """Return a key that includes the content: it differs for the same commit in another folder."""
    content = hashlib.sha256(b"\n".join(map(encode, chunk))).hexdigest()
    return f"git-{commit.hash}-{number}-{content[:16]}"


def _follow(poster: Poster, repo: Repository) -> None:
    tree = WorkingTree(repo, warn=_warn)
    while True:
        operations = tree.changes()
        for chunk in _chunks(operations):
            poster.post(chunk)
        if operations:
            click.echo(f"{len(operations)} changed on disk")
        time.sleep(LOOK_EVERY_S)


def _make_up(url: str, feed: str) -> NoReturn:
    with Poster(url, feed, on_retry=retrying) as poster:
        for operation in made_up_operations():
            poster.post([operation])
            time.sleep(MADE_UP_EVERY_S)
    raise AssertionError("there is no end to it")


def _warn(warning: str) -> None:
    click.echo(warning, err=True)


@click.command(epilog=EXIT_CODES)
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Where Tidings is.")
@click.option("--feed", default="main", show_default=True, help="Which feed to post to.")
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
    help="Operations a second while the history is posted; 0 as fast as possible.",
)
@click.option("--once", is_flag=True, help="Stop after the history.")
@click.option("--made-up", is_flag=True, help="No repository: what nobody ever did, without end.")
def main(url: str, feed: str, repo: Path, rate: float, once: bool, made_up: bool) -> None:
    """
    Post the history of a git repository, oldest commit first, then what changes on disk.

    Each file is an object of type `file`; its parents are the repository, its folder and
    the author. Started again within a day, it posts nothing twice. Ctrl-C ends it.

    \b
    Example:
      python -m tidings.client.demo --repo ~/src/project --rate 200
    """
    # A shell that starts the demo in the background makes it ignore Ctrl-C; accept the signal.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        if made_up:
            _make_up(url, feed)
        repository = open_repository(repo)
        with Poster(url, feed, on_retry=retrying) as poster:
            count = post_history(poster, history(repository, warn=_warn), Pace(rate))
            click.echo(f"the history of {repository.name}: {count:,} operations")
            if not once and not repository.is_bare:
                click.echo("now what changes on disk; Ctrl-C ends it")
                _follow(poster, repository)
    except (NoRepository, ClientError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        pass  # Ctrl-C ends it
