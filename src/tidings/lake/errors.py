"""What ends a run; each message says in one sentence what to do."""

from __future__ import annotations


class LakeError(Exception):
    """Base class; told by the command and by the job of a stage."""


class NoIceberg(LakeError):
    """The library of the table format is neither here nor can be fetched."""


class BadTable(LakeError):
    """The address of the table is none, or its tables are not ours."""


class BadColumns(LakeError):
    """A schema of a type breaks its rule, or is not that of the table."""


class Raced(LakeError):
    """Another run committed meanwhile; nothing of this commit was."""


class PartGone(LakeError):
    """A part was removed between listing and reading: somebody else compacts at this moment."""


class Stopped(LakeError):
    """A guard objects; nothing was done beyond what the report says."""
