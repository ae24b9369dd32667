"""Messages of a pipeline, its errors, and the rules for names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.client.worker import Message as Delivered


class WrongPipeline(Exception):
    """The pipeline is invalid; the message says why and where."""


class Busy(Exception):
    """The store does not accept messages now, although they may be valid."""


class Overtaken(Exception):
    """A later worker of the same consumer has written; nothing of this batch was written."""


class Away(Exception):
    """A store or source that was open before cannot be opened now; retry without limit."""


READER = "tidings.reader"  # type of the objects that store the position of a reader
EVERYTHING = "/.*/"  # the pattern that matches each namespace
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}", re.ASCII)  # a consumer is named NAME.NAME
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def validate_name(name: str, what: str) -> str:
    """
    Return *name* if it is a valid name of *what*.

    Raises:
        WrongPipeline: the name is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "1 to 31 of a-z, 0-9, '-' and '_', and start with a letter or digit"
        raise WrongPipeline(f"{what} must have a name of its own, {rule}; not {name!r}")
    return name


def checked_table(name: str, what: str = "table") -> str:
    """
    Return *name* if every database accepts it as a table name without quotes.

    *what* is the word for the named object in the error.

    Raises:
        WrongPipeline: the name is invalid.
    """
    if not _TABLE.fullmatch(name):
        rule = "must be 1 to 63 of a-z, 0-9 and '_', and not start with a digit"
        raise WrongPipeline(f"{what} {rule}; not {name!r}")
    return name


def matcher(namespace: str) -> re.Pattern[str]:
    """
    Compile the regular expression *namespace*, which may match any part of a namespace.

    The expression may be enclosed in slashes.

    Raises:
        WrongPipeline: *namespace* is not a regular expression.
    """
    try:
        return re.compile(namespace.strip("/"))
    except re.error as error:
        raise WrongPipeline(
            f"namespace {namespace!r} is not a regular expression: {error}"
        ) from None


COMMAND = "command"  # the op of a `reset`: a copy follows, and earlier objects may not exist


@dataclass(slots=True)
class Message:
    """
    An operation on its way to a store. Functions may change every field except `id`.

    `op` is insert, update, delete or command. `namespace` is the type of the object, and `ts` the
    timestamp of the operation. `data` is the operation as it was posted, with `type`, `id`,
    `parents`, `timestamp` and its other fields. A command has no data.
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
        return self.op in ("delete", "leave")

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
