"""Messages to people about a sync in the cloud: a request for approval, and the result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.sync import workflow

if TYPE_CHECKING:
    from collections.abc import Mapping

REJECTED = "rejected"
_SUBJECT_CHARS_MAX = 99  # limit of SNS
_AGAIN = "Sync again: what was applied is found as done."
_RESERVED = "States."  # Step Functions reserves such names: a state machine may not fail with one
_NAMES = {
    "States.TaskFailed": "JobFailed",
    "States.Timeout": "TimedOut",
}
_SENTENCES = {
    "PlanTooOld": "The plan is too old: what happened since cannot be told any more. "
    "What was not applied was left as it is. Sync again.",
    "States.Timeout": f"A step took longer than it may. {_AGAIN}",
}


@dataclass(frozen=True, slots=True)
class Who:
    """The identity of a sync: its *id* and *stage*."""

    stage: str
    id: str


def question(who: Who, sync: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, str]:
    """Return the `subject` and `message` of a request for approval."""
    days = limits.SYNC_APPROVAL_S // (24 * 3600)
    lines = [
        f"The sync {who.id} of the feed {sync['feed']} with {sync['dump']} waits.",
        f"{_sentence(judged['stopped'])}",
        _planned(judged),
        "",
        "The plan is made, nothing of it is applied. Within "
        f"{days} days, apply all of it or nothing:",
        f"  tidings sync approve {who.id} --stage {who.stage}",
        f"  tidings sync reject {who.id} --stage {who.stage}",
        "No answer means no.",
    ]
    return _notice(who, f"sync of {sync['feed']} waits for your answer", lines)


def report(who: Who, state: Mapping[str, Any], failed: str | None) -> dict[str, Any]:
    """
    Return the result of a sync, from the final *state* of its state machine.

    *failed* is the job's own description of its failure. The result has `outcome`, the counts,
    `subject` and `message`; for a failure also `error` and `cause`.
    """
    sync = state.get("sync") or {}
    error, cause = _failure(state, failed)
    outcome = "failed" if error else _outcome(state)
    named = f"sync of {sync['feed']}" if sync else "sync"
    result: dict[str, Any] = {"outcome": outcome, "id": who.id} | _counts(state)
    for name in ("feed", "dump"):
        if name in sync:
            result[name] = sync[name]
    lines = [f"The {named} ({who.id}): {outcome}.", *_details(state, cause)]
    if error:
        result |= {"error": error, "cause": cause}
    return result | _notice(who, f"{named} {outcome}", lines)


def _outcome(state: Mapping[str, Any]) -> str:
    if _answered_no(state):
        return REJECTED
    approved = state.get("answer", {}).get("approved")
    return workflow.DONE if approved else str(state["judged"]["outcome"])


def _answered_no(state: Mapping[str, Any]) -> bool:
    return "answer" in state and not state["answer"].get("approved")


def _failure(state: Mapping[str, Any], failed: str | None) -> tuple[str, str]:
    """Return the error and its cause, or two empty strings."""
    refused = (state.get("judged") or {}).get("refused")
    if refused:
        return _name(refused["error"]), _of_parts(refused)
    error = state.get("error")
    if not error:
        return "", ""
    cause = failed or _SENTENCES.get(error["Error"]) or _cause(error.get("Cause", ""))
    return _name(error["Error"]), cause[: limits.SYNC_CAUSE_CHARS]


def _name(error: str) -> str:
    return _NAMES.get(error, error).removeprefix(_RESERVED)


def _of_parts(refused: Mapping[str, Any]) -> str:
    count = refused["parts"]
    parts = "1 part of the plan" if count == 1 else f"{count:,} parts of the plan"
    why = _SENTENCES.get(refused["error"], f"{refused['error']}. {_AGAIN}")
    return f"{parts} could not be applied, first {refused['key']}: {why}"


def _cause(text: str) -> str:
    """Return the sentence in the failure message of a Lambda function or of EMR."""
    try:
        failure = json.loads(text)
    except ValueError:
        return text
    if not isinstance(failure, dict):
        return text
    sentences = [failure.get(name) for name in ("errorMessage", "StateDetails", "stateDetails")]
    return next((each for each in sentences if isinstance(each, str) and each), text)


def _counts(state: Mapping[str, Any]) -> dict[str, int]:
    judged = state.get("judged") or {}
    return {**judged.get("counts", {}), **judged.get("applied", {})}


def _details(state: Mapping[str, Any], cause: str) -> list[str]:
    judged = state.get("judged") or {}
    lines = [_planned(judged)] if judged else []
    if judged.get("next") != workflow.END and judged and not _answered_no(state):
        applied = judged["applied"]
        lines.append(
            f"{applied['applied']:,} applied, {applied['moved']:,} moved meanwhile and left as "
            f"they are, {applied['done']:,} were done already."
        )
    if judged.get("stopped"):
        lines.append(_sentence(judged["stopped"]))
    return [*lines, _sentence(cause)] if cause else lines


def _planned(judged: Mapping[str, Any]) -> str:
    counts = judged["counts"]
    return (
        f"{counts['creates']:,} creates, {counts['updates']:,} updates, "
        f"{counts['deletes']:,} deletes, {counts['untouched']:,} untouched."
    )


def _sentence(text: str) -> str:
    """Return *text* as a complete sentence."""
    text = text.rstrip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ")")) else ".")


def _notice(who: Who, subject: str, lines: list[str]) -> dict[str, str]:
    return {
        "subject": f"tidings {who.stage}: {subject}"[:_SUBJECT_CHARS_MAX],
        "message": "\n".join(lines),
    }
