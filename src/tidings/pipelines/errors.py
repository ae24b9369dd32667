"""Errors of pipelines."""

from __future__ import annotations


class WrongPipeline(Exception):
    """The pipeline is invalid; the text says why and where."""


class Busy(Exception):
    """The store does not accept messages now; the messages may be valid."""


class Overtaken(Exception):
    """A later worker of the same consumer has written; nothing of this batch was written."""


class Away(Exception):
    """A store or source that could be opened before cannot be opened now: retry without limit."""
