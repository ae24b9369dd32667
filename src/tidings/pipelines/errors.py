"""What a pipeline's author is told."""

from __future__ import annotations


class WrongPipeline(Exception):
    """The pipeline cannot run as it is written; the text says what and where."""


class Busy(Exception):
    """The store does not take messages now, which may be well in themselves."""


class Overtaken(Exception):
    """A later worker of the same consumer has written: nothing of this batch was."""


class Away(Exception):
    """What could be opened before cannot be now: it is waited for, however long that takes."""
