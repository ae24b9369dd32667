"""The errors that end a run; each message says in one sentence what to do."""

from __future__ import annotations

from collections.abc import Mapping


class LakeError(Exception):
    """Base class; the command and the job of a stage print its message."""


class NoIceberg(LakeError):
    """The library of the table format is missing and cannot be fetched."""


class BadTable(LakeError):
    """The address of the table is invalid, or has tables of another program."""


class BadColumns(LakeError):
    """The schema of a type is invalid, or differs from that of the table."""


class Raced(LakeError):
    """Another run committed at the same time; nothing of this commit was written."""


class PartGone(LakeError):
    """A part was removed between listing and reading: another process compacts at the same time."""


class TypesFailed(LakeError):
    """The tables of some types could not be written; all other tables are complete."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(f"tables of types that stay where they were: {told}; run again")


class Stopped(LakeError):
    """A guard objects; only the work in the report was done."""
