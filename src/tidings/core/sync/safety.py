"""
Guards: checks that stop a harmful dump or plan.

An export that failed half way looks as if most objects were deleted. Each objection has a code and
says how to proceed.
"""

from __future__ import annotations

from dataclasses import dataclass

ALIEN_SHARE_MAX = 0.10  # rows go wrong one by one; a lost or replaced log is wrong at once
DELETE_SHARE_MAX = 0.10  # fewer objects vanish between two dumps than in a half-failed export


@dataclass(frozen=True, slots=True)
class Objection:
    """The reason to stop a sync. *allowable*: an operator who has read the plan may allow it."""

    code: str
    sentence: str
    allowable: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The size of a dump. *declared* is the sum of its end lines, None without an end line."""

    lines: int
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The size of a plan. *objects* counts the state's existing objects of the synced types."""

    deletes: int
    objects: int


def check_dump(dump: Found, *, expected: int | None = None) -> Objection | None:
    """Return an objection if the dump is empty or truncated."""
    if not dump.lines:
        return Objection("empty_dump", "the dump holds no object: a sync of nothing is an accident")
    for source, wanted in (("its end line says", dump.declared), ("--expect says", expected)):
        if wanted is not None and wanted != dump.lines:
            sentence = f"the dump holds {dump.lines:,} objects, {source} {wanted:,}: make it again"
            return Objection("truncated_dump", sentence)
    return None


def check_plan(planned: Planned, *, share_max: float = DELETE_SHARE_MAX) -> Objection | None:
    """Return an objection if the plan deletes an implausible share of the objects."""
    if planned.deletes <= share_max * planned.objects:
        return None
    share = planned.deletes / planned.objects
    return Objection(
        "too_many_deletes",
        f"{planned.deletes:,} of {planned.objects:,} objects ({share:.0%}) would be deleted,"
        f" more than {share_max:.0%}: if that is meant, allow it with --max-delete-share",
        allowable=True,
    )


def check_rebuild(
    aliens: int, rows: int, *, share_max: float = ALIEN_SHARE_MAX
) -> Objection | None:
    """
    Return an objection if a rebuild would undo an implausible share of the state.

    *aliens* of the *rows* would be removed or reverted, because the log does not contain them.
    """
    if aliens <= share_max * rows:
        return None
    return Objection(
        "too_many_aliens",
        f"the log knows nothing of {aliens:,} of {rows:,} rows ({aliens / rows:.0%}), more than"
        f" {share_max:.0%}: look whether the log is the right one, or allow it with"
        " --max-alien-share",
    )
