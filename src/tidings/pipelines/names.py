"""Names that a pipeline gives, and which namespaces a step or a store is for."""

from __future__ import annotations

import re

from tidings.pipelines.errors import WrongPipeline

READER = "tidings.reader"  # the type of the objects that say how far a reader is
EVERYTHING = "/.*/"  # as a namespace
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}", re.ASCII)  # two of them and a dot name a consumer
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def checked(name: str, what: str) -> str:
    """
    *name*, if *what* can be called so.

    Raises:
        WrongPipeline: it cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "1 to 31 of a-z, 0-9, '-' and '_', and start with a letter or digit"
        raise WrongPipeline(f"{what} must have a name of its own, {rule}; not {name!r}")
    return name


def checked_table(name: str, what: str = "table") -> str:
    """
    *name*, if a table can be called so in every database without quotes; *what* it is, if not that.

    Raises:
        WrongPipeline: it cannot.
    """
    if not _TABLE.fullmatch(name):
        rule = "must be 1 to 63 of a-z, 0-9 and '_', and not start with a digit"
        raise WrongPipeline(f"{what} {rule}; not {name!r}")
    return name


def matcher(namespace: str) -> re.Pattern[str]:
    """
    A regular expression, with or without slashes around it, found anywhere in a namespace.

    Raises:
        WrongPipeline: it is none.
    """
    try:
        return re.compile(namespace.strip("/"))
    except re.error as error:
        raise WrongPipeline(f"namespace {namespace!r} is no regular expression: {error}") from None
