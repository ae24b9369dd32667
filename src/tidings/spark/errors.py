"""What a read or a write of a feed fails with; each message says what to change."""

from __future__ import annotations


class SparkError(Exception):
    """Base class; Spark shows its text."""


class WrongOption(SparkError):
    """An option breaks its rule. The value of a password is never told."""

    def __init__(self, name: str, rule: str, value: str | None = None) -> None:
        given = "" if value is None else f", got {value!r}"
        super().__init__(f"option {name}: {rule}{given}")


class WrongColumn(SparkError):
    """A column that is not known, is missing or has another type."""


class Gone(SparkError):
    """Pages that are to be read are not there any more."""


class Lagging(SparkError):
    """The state does not hold yet what is asked of it, and comes no nearer."""


class NotAppended(SparkError):
    """Operations that the feed did not take; nothing of their page was appended."""
