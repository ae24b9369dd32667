"""The definition of a pipeline: a source, functions, and the stores to which it writes.

pipeline = Pipeline("videos", Source("http://127.0.0.1:8042"))
pipeline.save("table", Postgres("postgresql:///videos"), omit("data.secret"))
"""

from __future__ import annotations

import logging
import operator
import re
import runpy
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidings.client.errors import Refused, Unwritten
from tidings.client.feed_api import NamedConsumers
from tidings.pipelines.documents import to_text
from tidings.pipelines.ingest_source import Reader
from tidings.pipelines.messages import (
    EVERYTHING,
    READER,
    Message,
    WrongPipeline,
    matcher,
    validate_name,
)
from tidings.pipelines.ownership import Owner

Step = Callable[[Message], Message | None]
UNKNOWN = "unknown_consumer"

_log = logging.getLogger("tidings.pipelines")
_MISSING = object()
_EQUAL = {"==", "eq", "$eq"}
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    spelling: compare
    for sign, word, compare in (
        (">", "gt", operator.gt),
        (">=", "gte", operator.ge),
        ("<", "lt", operator.lt),
        ("<=", "lte", operator.le),
    )
    for spelling in (sign, word, f"${word}")
}
_MATCHES = "=~"
_OPS = frozenset({"insert", "update", "delete", "leave", "erase"})


def omit(*fields: str) -> Step:
    """Return a step that removes *fields*."""
    paths = [_path(each) for each in fields]

    def step(message: Message) -> Message:
        for path in paths:
            _remove(message.data, path)
        return message

    return _name_step(step, "omit", *fields)


def pick(*fields: str) -> Step:
    """Return a step that removes all fields except *fields*, `type` and `id`."""
    paths = [_path(each) for each in (*fields, "type", "id")]

    def step(message: Message) -> Message:
        values = [(path, _value(message.data, path)) for path in paths]
        message.data = {}
        for path, value in values:
            if value is not _MISSING:
                _set(message.data, path, value)
        return message

    return _name_step(step, "pick", *fields)


def rename(fields: Mapping[str, str]) -> Step:
    """Return a step that renames fields. *fields* maps old names to new names."""
    paths = [(_path(old), _path(new)) for old, new in fields.items()]

    def step(message: Message) -> Message:
        for old, new in paths:
            value = _remove(message.data, old)
            if value is not _MISSING:
                _set(message.data, new, value)
        return message

    return _name_step(step, "rename", *(f"{old}={new}" for old, new in fields.items()))


def remap(namespaces: Mapping[str, str]) -> Step:
    """Return a step that renames namespaces. *namespaces* maps old names to new names."""

    def step(message: Message) -> Message:
        message.namespace = namespaces.get(message.namespace, message.namespace)
        return message

    return _name_step(step, "remap", *(f"{old}={new}" for old, new in namespaces.items()))


def skip(field: str, comparison: str, match: Any) -> Step:
    """Return a step that keeps only messages with a matching *field*, and skips all others.

    *comparison* is `==`, `=~`, `>`, `>=`, `<` or `<=`, and *match* is the value to compare with.
    Integers and floats are compared by value. A field does not match if it is missing or has
    another type than *match*.

    Raises:
        WrongPipeline: the comparison is unknown.
    """
    path, holds = _path(field), _comparison(comparison, match)

    def step(message: Message) -> Message | None:
        return message if holds(_value(message.data, path)) else None

    return _name_step(step, "skip", field, comparison, repr(match))


def opfilter(*, whitelist: tuple[str, ...] = (), blacklist: tuple[str, ...] = ()) -> Step:
    """Return a step that keeps only messages with an op in *whitelist*, or not in *blacklist*.

    Raises:
        WrongPipeline: both lists are given, or no list, or an op is unknown.
    """
    if bool(whitelist) == bool(blacklist):
        raise WrongPipeline("opfilter needs a whitelist or a blacklist, and not both")
    for op in (*whitelist, *blacklist):
        if op not in _OPS:
            raise WrongPipeline(f"opfilter: {op!r} is unknown; known are {', '.join(sorted(_OPS))}")
    kept = frozenset(whitelist) or _OPS - frozenset(blacklist)

    def step(message: Message) -> Message | None:
        return message if message.op in kept else None

    return _name_step(step, "opfilter", *sorted(kept))


def pretty(spaces: int = 2) -> Step:
    """Return a step that logs each message and keeps it unchanged."""

    def step(message: Message) -> Message:
        separators = (",", ": ")
        text = to_text(message.data, separators=separators, indent=spaces, ensure_ascii=False)
        _log.info("%s %s %s", message.op, message.namespace, text)
        return message

    return _name_step(step, "pretty", str(spaces))


def name_of(step: Step) -> str:
    """Return the name of a step, for people."""
    return getattr(step, "shown", getattr(step, "__name__", type(step).__name__))


def _name_step(step: Step, name: str, *arguments: str) -> Step:
    step.shown = f"{name}({', '.join(arguments)})"  # type: ignore[attr-defined]
    return step


def _comparison(name: str, match: Any) -> Callable[[Any], bool]:
    if name in _EQUAL:
        # In JSON, true and 1 are different, although they are equal in Python.
        return lambda value: (
            isinstance(value, bool) == isinstance(match, bool) and bool(value == match)
        )
    if name == _MATCHES:
        pattern = _pattern(match)
        return lambda value: isinstance(value, str) and pattern.search(value) is not None
    if name not in _ORDERED:
        known = ", ".join(["==", _MATCHES, *_ORDERED])
        raise WrongPipeline(f"skip: {name!r} is not a comparison; the comparisons are {known}")
    compare = _ORDERED[name]
    return lambda value: _comparable(value, match) and compare(value, match)


def _pattern(match: Any) -> re.Pattern[str]:
    try:
        return re.compile(match)
    except (re.error, TypeError) as error:
        raise WrongPipeline(f"skip: {match!r} is not a regular expression: {error}") from None


def _comparable(value: Any, match: Any) -> bool:
    for kind in ((int, float), (str,)):
        if isinstance(match, kind) and not isinstance(match, bool):
            return isinstance(value, kind) and not isinstance(value, bool)
    return False


def _path(field: str) -> list[str]:
    if not field or "" in field.split("."):
        raise WrongPipeline(f"{field!r} is not the name of a field")
    return field.split(".")


def _value(data: Any, path: list[str]) -> Any:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return _MISSING
        data = data[part]
    return data


def _remove(data: Any, path: list[str]) -> Any:
    holder = _value(data, path[:-1])
    return holder.pop(path[-1], _MISSING) if isinstance(holder, dict) else _MISSING


def _set(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        data = inner
    data[path[-1]] = value


Api = TypeVar("Api")
STARTS = ("copy", "oldest", "now")
Put = Callable[[list[Message], int], None]


class Sink(Protocol):
    """A store. It must be idempotent, because the same messages may be written again."""

    def open(self, consumer: str) -> None:
        """Connect, and create missing tables or files. *consumer* is the name of the writer.

        A store is opened again after errors.
        """

    def write(self, messages: list[Message], fence: int) -> None:
        """Write all messages, and return when they are durable.

        *fence* is higher for each new worker. A store that supports fences rejects a *fence* that
        is lower than an earlier one.

        Raises:
            Unwritten: the message at the error's *index* was rejected. The messages before it are
                durable.
            Exception: the store failed. The messages will be written again.
        """

    def close(self) -> None: ...

    def __str__(self) -> str:
        """Return a description for people, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    namespace: re.Pattern[str]
    step: Step


@dataclass(frozen=True, slots=True)
class Source:
    """A feed, and a selection of its objects.

    *types* and *parents* select objects of these types and with these parents. If one of them is
    empty, it selects all objects. A new store begins at *start*, which is `copy` (every object,
    then the log), `oldest` or `now`. For a deployed stage, *url* is the stage's `FeedUrl`, and
    *ws_url* its `SocketsUrl`.
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
        """Return a new client of the class *api* for the feed. The caller must close it."""
        return api(self.url, self.feed, password=self.password)


@dataclass(frozen=True, slots=True)
class Branch:
    """The path of messages to one store. Each of the *steps* applies only to some namespaces."""

    name: str
    sink: Sink
    steps: tuple[_Wanted, ...]
    namespace: re.Pattern[str]
    bulk: int
    park: bool

    def transform(self, message: Message) -> Message | None:
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

    def write(
        self,
        messages: list[Message],
        fence: int,
        on_written: Callable[[list[Message]], None] = lambda messages: None,
        put: Put | None = None,
    ) -> int:
        """Transform and write *messages*; return the number of operations written.

        *on_written* is called with the transformed messages that the store has written.
        *put* is called instead of the `write` of the store.

        Raises:
            Unwritten: a function or the store rejected the message at the error's *index*.
        """
        kept, failure = self._transform_all(messages)
        made = [message for _, message in kept]
        try:
            if made:
                (put or self.sink.write)(made, fence)
                on_written(made)
        except Unwritten as error:
            on_written(made[: error.index])
            raise Unwritten(kept[error.index][0], error.reason) from None
        if failure is not None:
            raise failure
        return sum(not message.is_command for message in made)

    def _transform_all(
        self, messages: list[Message]
    ) -> tuple[list[tuple[int, Message]], Unwritten | None]:
        kept: list[tuple[int, Message]] = []
        for index, message in enumerate(messages):
            try:
                result = self.transform(message)
            except Exception as error:  # noqa: BLE001 a function of the user may raise anything
                return kept, Unwritten(index, f"{type(error).__name__}: {error}")
            if result is not None:
                kept.append((index, result))
        return kept, None


class Pipeline:
    """A source, functions, and stores.

    Each store is a consumer of the feed, which keeps the store's position. *name* and the name of
    the store form the name of the consumer.

    Raises:
        WrongPipeline: the name is invalid.
    """

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source = validate_name(name, "a pipeline"), source
        self.branches: list[Branch] = []
        self.readers: dict[str, Reader] = {}

    def read(self, name: str, reader: Reader) -> Pipeline:
        """Append to the feed everything that *reader* reads. The stores follow the feed.

        Raises:
            WrongPipeline: the name is invalid or used already.
        """
        validate_name(name, "a reader")
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
        """Write to *sink* the messages that pass the *steps*.

        A step may be a pair of a namespace and a function. The function then applies only to
        messages with a matching namespace (`matcher`). *bulk* is the maximum number of messages in
        a batch. If a step or the store keeps rejecting a message, the store stops before this
        message. If *park*, the message is instead parked: the feed sets it aside with its error, as
        after `tidings consumers park`, and the next messages are written.

        Raises:
            WrongPipeline: the name is invalid or used already, *namespace* is not a regular
                expression, *bulk* is less than 1, or a step is not a function.
        """
        validate_name(name, "a store")
        if any(branch.name == name for branch in self.branches):
            raise WrongPipeline(f"there is a store {name!r} already")
        if bulk < 1:
            raise WrongPipeline(f"bulk must be at least 1, not {bulk}")
        wanted = tuple(_step_of(step) for step in steps)
        self.branches.append(Branch(name, sink, wanted, matcher(namespace), bulk, park))
        return self

    def consumer(self, branch: Branch) -> str:
        return f"{self.name}.{branch.name}"

    def reader(self, name: str) -> str:
        """Return the name of the reader *name* in the feed."""
        return f"{self.name}.{name}"

    def owner(self, branch: Branch, adopt: int | None = None) -> Owner:
        """Return the owner of the target of *branch*, with the consumer's state in the feed.

        Raises:
            Refused, AccessDenied, Lost: the feed gave no position.
        """
        source, consumer = self.source, self.consumer(branch)
        with source.opened(NamedConsumers) as api:
            try:
                found = api.show(consumer)
            except Refused as refused:
                if refused.code != UNKNOWN:
                    raise
                found = {}
        is_known = bool(found and (found["position"] is not None or found["copying"]))
        # With another start, a consumer may have a position before its store was opened.
        is_copied = is_known and not found["copying"] and source.start == "copy"
        # A feed of an earlier release has no number.
        return Owner(consumer, source.feed, is_known, is_copied, adopt, found.get("written", 0))

    def tree(self) -> str:
        """Return the pipeline as text for people."""
        lines = [f"{self.name}: {self.source}, from {self.source.start}"]
        lines += [f"- reads {name}: {reader}" for name, reader in self.readers.items()]
        for branch in self.branches:
            parks = ", parks rejected messages" if branch.park else ""
            lines.append(f"- {branch.name}: {branch.sink}{_of(branch.namespace)}{parks}")
            lines += [f"  - {name_of(each.step)}{_of(each.namespace)}" for each in branch.steps]
        return "\n".join(lines)


def _step_of(step: Step | tuple[str, Step]) -> _Wanted:
    namespace, function = step if isinstance(step, tuple) else (EVERYTHING, step)
    if not callable(function):
        raise WrongPipeline(f"{function!r} is not a function")
    return _Wanted(namespace=matcher(namespace), step=function)


def _of(namespace: re.Pattern[str]) -> str:
    return "" if namespace == matcher(EVERYTHING) else f" of /{namespace.pattern}/"


def load(path: Path) -> Pipeline:
    """Run the file *path*, and return the only pipeline that it creates.

    Raises:
        WrongPipeline: the file fails, or does not create exactly one pipeline, or the pipeline has
            no store.
    """
    if not path.is_file():
        raise WrongPipeline(f"{path} does not exist; `tidings pipeline init` writes such a file")
    try:
        made = runpy.run_path(str(path), run_name="pipeline")
    except WrongPipeline:
        raise
    except Exception as error:  # noqa: BLE001 a user's file may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise WrongPipeline(f"{path}{_line_of(error, path)}: {reason}") from None
    pipelines = {id(value): value for value in made.values() if isinstance(value, Pipeline)}
    if len(pipelines) != 1:
        raise WrongPipeline(f"{path} creates {len(pipelines)} pipelines; it must create one")
    (pipeline,) = pipelines.values()
    if not pipeline.branches:
        raise WrongPipeline(f"{path}: the pipeline {pipeline.name} has no store")
    return pipeline


def _line_of(error: Exception, path: Path) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        lines = [error.lineno]
    return f", line {lines[-1]}" if lines else ""
