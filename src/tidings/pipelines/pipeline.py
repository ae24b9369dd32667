"""
The definition of a pipeline: the source of its messages, and the stores it writes to.

    pipeline = Pipeline("videos", Source("http://127.0.0.1:8042"))
    pipeline.save("table", Postgres("postgresql:///videos"), omit("data.secret"))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tidings.client.errors import Unwritten
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import Reader
from tidings.pipelines.message import Message
from tidings.pipelines.names import EVERYTHING, READER, checked, matcher
from tidings.pipelines.steps import Step, name_of

Api = TypeVar("Api")
STARTS = ("copy", "oldest", "now")


class Sink(Protocol):
    """A store. It must be idempotent: the same messages may be written again, in order."""

    def open(self, consumer: str) -> None:
        """Connect, and create the tables or files that are missing. *consumer* names the writer."""
        ...

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Write all messages or none, and return when they are durable.

        *fence* grows with each new worker. A store that supports it rejects a lower one.

        Raises:
            Unwritten: the messages before its index are durable, and the one at it was rejected.
            Exception: no message was written, and the store failed.
        """
        ...

    def close(self) -> None: ...

    def __str__(self) -> str:
        """Return a description for people, without secrets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    namespace: re.Pattern[str]
    step: Step


@dataclass(frozen=True, slots=True)
class Source:
    """
    A feed, and a selection of its objects: those of *types* below *parents* (empty: all).

    *start* is the position at which a new store begins: `copy` (every object, then the log),
    `oldest` or `now`. For a deployed stage, *url* is its `FeedUrl` and *ws_url* its `SocketsUrl`.
    """

    url: str
    feed: str = "main"
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    start: str = "copy"
    password: str = field(default="", repr=False)
    ws_url: str | None = None

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise WrongPipeline(f"start must be one of {', '.join(STARTS)}, not {self.start!r}")

    def __str__(self) -> str:
        return f"feed {self.feed} at {self.url}"

    def opened(self, api: Callable[..., Api]) -> Api:
        """Return a new client of the class *api*, connected to the feed; the caller closes it."""
        return api(self.url, self.feed, password=self.password)


@dataclass(frozen=True, slots=True)
class Branch:
    """The path to one store: its *steps* in order, each for the namespaces that it names."""

    name: str
    sink: Sink
    steps: tuple[_Wanted, ...]
    namespace: re.Pattern[str]
    bulk: int
    park: bool

    def transformed(self, message: Message) -> Message | None:
        """Return the message after all steps, or None if it is filtered out."""
        if message.is_command:
            return message
        if message.namespace == READER or not self.namespace.search(message.namespace):
            return None
        for wanted in self.steps:
            if wanted.namespace.search(message.namespace):
                result = wanted.step(message)
                if result is None or result.op == "skip":
                    return None
                message = result
        return message

    def write(self, messages: list[Message], fence: int) -> int:
        """
        Transform and write *messages*; return the number of operations written.

        Raises:
            Unwritten: a function or the store failed at this index of *messages*.
        """
        kept, failure = self._all_transformed(messages)
        try:
            if kept:
                self.sink.write([message for _, message in kept], fence)
        except Unwritten as error:
            raise Unwritten(kept[error.index][0], error.reason) from None
        if failure is not None:
            raise failure
        return sum(not message.is_command for _, message in kept)

    def _all_transformed(
        self, messages: list[Message]
    ) -> tuple[list[tuple[int, Message]], Unwritten | None]:
        kept: list[tuple[int, Message]] = []
        for index, message in enumerate(messages):
            try:
                result = self.transformed(message)
            except Exception as error:  # noqa: BLE001 the author's function may raise anything
                return kept, Unwritten(index, f"{type(error).__name__}: {error}")
            if result is not None:
                kept.append((index, result))
        return kept, None


class Pipeline:
    """
    A source, functions, and stores.

    *name* and the names of the stores form the names of the consumers. The feed keeps their
    positions.

    Raises:
        WrongPipeline: the name is invalid.
    """

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = checked(name, "a pipeline"), source
        self.branches: list[Branch] = []
        self.readers: dict[str, Reader] = {}

    def read(self, name: str, reader: Reader) -> Pipeline:
        """
        Append everything that *reader* reads to the feed, for the stores to follow.

        Raises:
            WrongPipeline: the name is invalid or used already.
        """
        checked(name, "a reader")
        if name in self.readers:
            raise WrongPipeline(f"there is a reader {name!r} already")
        self.readers[name] = reader
        return self

    def save(
        self,
        name: str,
        sink: Sink,
        *steps: Step | tuple[str, Step],
        namespace: str = EVERYTHING,
        bulk: int = 500,
        park: bool = False,
    ) -> Pipeline:
        """
        Write to *sink* the messages that pass the *steps*.

        A step in a pair with a namespace applies only to that namespace. With *park*, a message
        that a step or the store keeps rejecting is parked with its error, and the next ones are
        written. Without it, the store stops before that message.

        Raises:
            WrongPipeline: the name is invalid or used already, or *namespace* is not a regular
                expression.
        """
        checked(name, "a store")
        if any(branch.name == name for branch in self.branches):
            raise WrongPipeline(f"there is a store {name!r} already")
        if bulk < 1:
            raise WrongPipeline(f"bulk must be at least 1, not {bulk}")
        wanted = tuple(_wanted(step) for step in steps)
        self.branches.append(Branch(name, sink, wanted, matcher(namespace), bulk, park))
        return self

    def consumer(self, branch: Branch) -> str:
        return f"{self.name}.{branch.name}"

    def reader(self, name: str) -> str:
        """Return the name of a reader in the feed."""
        return f"{self.name}.{name}"

    def tree(self) -> str:
        """Return the pipeline as text for people."""
        lines = [f"{self.name}: {self.source}, from {self.source.start}"]
        lines += [f"- reads {name}: {reader}" for name, reader in self.readers.items()]
        for branch in self.branches:
            parks = ", parks what it refuses" if branch.park else ""
            lines.append(f"- {branch.name}: {branch.sink}{_of(branch.namespace)}{parks}")
            lines += [f"  - {name_of(each.step)}{_of(each.namespace)}" for each in branch.steps]
        return "\n".join(lines)


def _wanted(step: Step | tuple[str, Step]) -> _Wanted:
    namespace, function = step if isinstance(step, tuple) else (EVERYTHING, step)
    if not callable(function):
        raise WrongPipeline(f"{function!r} is no function")
    return _Wanted(namespace=matcher(namespace), step=function)


def _of(namespace: re.Pattern[str]) -> str:
    return "" if namespace == matcher(EVERYTHING) else f" of /{namespace.pattern}/"
