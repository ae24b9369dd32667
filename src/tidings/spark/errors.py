"""The errors of reads and writes of a feed; each message says what to change."""

from __future__ import annotations


class SparkError(Exception):
    """Base class; Spark shows its text."""


class WrongOption(SparkError):
    """An option is invalid. The message never contains a password."""

    def __init__(self, name: str, rule: str, value: str | None = None) -> None:
        given = "" if value is None else f", got {value!r}"
        super().__init__(f"option {name}: {rule}{given}")


class WrongColumn(SparkError):
    """A column is unknown, missing, or has another type."""


class Gone(SparkError):
    """Pages to be read no longer exist."""


class Lagging(SparkError):
    """The state does not include the requested page, and does not advance."""


class NotAppended(SparkError):
    """The feed rejected operations; nothing of their page was appended."""
