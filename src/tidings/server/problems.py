"""Errors shown to the operator as one sentence, without a traceback."""

from __future__ import annotations


class Problem(Exception):
    """A host cannot start or continue; the message is one sentence that names the remedy."""


class PortBusy(Problem):
    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port} ({reason}); choose another with --port")
