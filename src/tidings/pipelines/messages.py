"""The messages of a pipeline, the errors of pipelines, and the rules for names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.client.worker import Message as Delivered


class WrongPipeline(Exception):
    """The pipeline or its data are invalid. The message says where and why."""


class Verdict(StrEnum):
    """What an error of a source or store means (`refusals`)."""

    PASSES = "passes"
    MESSAGE = "final for one message"
    ALL = "final for all messages"
    UNKNOWN = "unknown"


class Busy(Exception):
    """The store or source refused a request, not because of its messages.

    Usually this passes; *verdict* is another one if the refusal has an error code of its own.
    """

    def __init__(self, reason: str, verdict: Verdict = Verdict.PASSES) -> None:
        self.verdict = verdict
        super().__init__(reason)


class Overtaken(Exception):
    """Another worker of the same consumer has taken over. Nothing of this batch was written."""


class Away(Exception):
    """A store or source that was available before is not available now. Retry without limit."""


READER = "tidings.reader"  # the type of the objects that store the positions of readers
EVERYTHING = "/.*/"  # a pattern that matches every namespace
# The name of a pipeline, a store or a reader. A consumer is named PIPELINE.STORE, in at most 63
# characters.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}", re.ASCII)
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def validate_name(name: str, what: str) -> str:
    """Return *name* if it is valid. *what* names its owner in the error, for example `a pipeline`.

    Raises:
        WrongPipeline: the name is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "1 to 31 characters a-z, 0-9, '-' and '_', and must begin with a letter or digit"
        raise WrongPipeline(f"the name of {what} must have {rule}; not {name!r}")
    return name


def checked_table(name: str, what: str = "table") -> str:
    """Return *name* if every database accepts it as the name of a table without quotes.

    *what* names the kind of the object in the error, for example `table`.

    Raises:
        WrongPipeline: the name is invalid.
    """
    if not _TABLE.fullmatch(name):
        rule = "must be 1 to 63 characters a-z, 0-9 and '_', and must not begin with a digit"
        raise WrongPipeline(f"{what} {rule}; not {name!r}")
    return name


def matcher(namespace: str) -> re.Pattern[str]:
    """Compile the regular expression *namespace*, which may be enclosed in slashes.

    The namespace of a message matches if the expression matches any part of the namespace.

    Raises:
        WrongPipeline: *namespace* is not a regular expression.
    """
    try:
        return re.compile(namespace.strip("/"))
    except re.error as error:
        raise WrongPipeline(
            f"namespace {namespace!r} is not a regular expression: {error}"
        ) from None


# The op of a `reset`: a copy of all objects follows, and other objects may no longer exist.
COMMAND = "command"


@dataclass(slots=True)
class Message:
    """An operation on its way to a store. Functions may change every field except `id`.

    `op` is insert, update, delete, leave, erase or command. `namespace` is the type of the object,
    and `ts` the timestamp of the operation. `data` is the operation as it was posted, with `type`,
    `id`, `parents`, `timestamp` and its other fields. A command has no data. `id` is the id of the
    event.
    """

    op: str
    namespace: str
    ts: str
    data: dict[str, Any]
    id: str

    @property
    def is_command(self) -> bool:
        return self.op == COMMAND

    @property
    def is_gone(self) -> bool:
        """Return True if the object was deleted or no longer matches the subscription."""
        return self.op in ("delete", "leave", "erase")

    @property
    def key(self) -> str:
        """Return the id of the object."""
        return str(self.data.get("id", ""))


def message_of(delivered: Delivered) -> Message:
    if delivered.event == "reset":
        return Message(COMMAND, "", "", {}, delivered.id)
    data = delivered.data
    namespace, ts = str(data.get("type", "")), str(data.get("timestamp", ""))
    return Message(delivered.event, namespace, ts, data, delivered.id)
