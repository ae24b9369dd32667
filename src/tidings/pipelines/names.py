"""Check the names of a pipeline, and match the namespaces of a step or a store."""

from __future__ import annotations

import re

from tidings.pipelines.errors import WrongPipeline

READER = "tidings.reader"  # type of the objects that store the position of a reader
EVERYTHING = "/.*/"  # as a namespace
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}", re.ASCII)  # two of them and a dot name a consumer
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def checked(name: str, what: str) -> str:
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

    *what* is the word for the object in the error, if it is not a table.

    Raises:
        WrongPipeline: the name is invalid.
    """
    if not _TABLE.fullmatch(name):
        rule = "must be 1 to 63 of a-z, 0-9 and '_', and not start with a digit"
        raise WrongPipeline(f"{what} {rule}; not {name!r}")
    return name


def matcher(namespace: str) -> re.Pattern[str]:
    """
    Compile the regular expression *namespace*, which is searched anywhere in a namespace.

    It may be enclosed in slashes.

    Raises:
        WrongPipeline: it is not a regular expression.
    """
    try:
        return re.compile(namespace.strip("/"))
    except re.error as error:
        raise WrongPipeline(f"namespace {namespace!r} is no regular expression: {error}") from None
