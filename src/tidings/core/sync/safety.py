"""
Guards: what stops a dump or a plan before it can do harm.

An export that failed half way looks like a world in which most objects are gone. Each objection
names itself by a code and says what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass

ALIEN_SHARE_MAX = 0.10  # a state goes wrong row by row; a log that was lost or replaced, at once
DELETE_SHARE_MAX = 0.10  # between two dumps fewer objects vanish than when an export fails half way


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a sync stops. *allowable*: a person who looks at the plan may say that it is meant."""

    code: str
    sentence: str
    allowable: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a dump holds. *declared* is what its end lines say, None where there is none."""

    lines: int
    declared: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """*objects* are those of the state that live and are of the types in question."""

    deletes: int
    objects: int


def check_dump(dump: Found, *, expected: int | None = None) -> Objection | None:
    """Whether all of the dump arrived."""
    if not dump.lines:
        return Objection("empty_dump", "the dump holds no object: a sync of nothing is an accident")
    for source, wanted in (("its end line says", dump.declared), ("--expect says", expected)):
        if wanted is not None and wanted != dump.lines:
            sentence = f"the dump holds {dump.lines:,} objects, {source} {wanted:,}: make it again"
            return Objection("truncated_dump", sentence)
    return None


def check_plan(planned: Planned, *, share_max: float = DELETE_SHARE_MAX) -> Objection | None:
    """Whether it deletes more than can be meant."""
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
    Whether more of the state is undone than can be wrong with it.

    *aliens* of its *rows* would be removed or taken back, because the log does not know them.
    """
    if aliens <= share_max * rows:
        return None
    return Objection(
        "too_many_aliens",
        f"the log knows nothing of {aliens:,} of {rows:,} rows ({aliens / rows:.0%}), more than"
        f" {share_max:.0%}: look whether the log is the right one, or allow it with"
        " --max-alien-share",
    )
