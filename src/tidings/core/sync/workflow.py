"""Parse requests for syncs in the cloud, decide the next step, and write messages to operators.

A request names a dump, or the key of an object that was uploaded to the stage's bucket for syncs:

    {"feed": "main", "dump": "s3://bucket/dumps/main/today.json.gz", "types": ["video"],
     "as_of": "2026-11-21T03:00:00Z", "deletes": true, "expect": 1000, "max_delete_share": 0.1,
     "skip_bad": 0, "dry_run": false}
    {"key": "dumps/main/today.json.gz"}

Only `dump` is required in the first form. An uploaded file directly below `dumps/<feed>/` is a
dump. A folder below `dumps/<feed>/` becomes a dump when `_SUCCESS` is uploaded to it, because its
files arrive one by one.

The messages to operators are requests for approval, and results.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import InvalidSync, PlanMissing
from tidings.core.model.feeds import DEFAULT_FEED, public_name
from tidings.core.model.filters import as_text
from tidings.core.sync import watermark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.model.feeds import FeedNames


REJECTED = "rejected"
_SUBJECT_CHARS_MAX = 99  # limit of SNS
_AGAIN = "Sync again: applied corrections are recognized as done."
_RESERVED = "States."  # a state machine may not fail with an error that has this prefix
_NAMES = {"States.TaskFailed": "JobFailed", "States.Timeout": "TimedOut"}
_SENTENCES = {
    "PlanTooOld": "The plan is too old: the log no longer has the changes since the plan was made, "
    "or deletions since then may be forgotten. "
    "The rest of the plan was not applied. Sync again.",
    "States.Timeout": f"A step took longer than its limit. {_AGAIN}",
}


@dataclass(frozen=True, slots=True)
class Who:
    """The identity of a sync: its *id* and *stage*."""

    stage: str
    id: str


def question(who: Who, sync: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, str]:
    """Return the `subject` and `message` of a request for approval."""
    days = limits.SYNC_APPROVAL_S // (24 * 3600)
    lines = [
        f"The sync {who.id} of the feed {public_name(sync['feed'])} with {sync['dump']} waits.",
        f"{_sentence(decision['stopped'])}",
        _plan_text(decision),
        "",
        "The plan is made, and no part of it is applied. Within "
        f"{days} days, approve or reject the plan:",
        f"  tidings sync approve {who.id} --stage {who.stage}",
        f"  tidings sync reject {who.id} --stage {who.stage}",
        "Without an answer, the plan is not applied.",
    ]
    return _notice(who, f"sync of {public_name(sync['feed'])} waits for your answer", lines)


def report(who: Who, state: Mapping[str, Any], failed: str | None) -> dict[str, Any]:
    """Return the result of a sync, from the final *state* of its state machine.

    *failed* is the reason that a failed job has stored, or None. The result has `outcome`, the
    counts, `subject` and `message`. The result of a failed sync also has `error` and `cause`.
    """
    sync = state.get("sync") or {}
    error, cause = _failure(state, failed)
    outcome = "failed" if error else _outcome(state)
    feed = public_name(sync["feed"]) if sync else ""
    named = f"sync of {feed}" if sync else "sync"
    result: dict[str, Any] = {"outcome": outcome, "id": who.id}
    decision = state.get("judged") or {}
    result |= {**decision.get("counts", {}), **decision.get("applied", {})}
    if sync:
        result |= {"feed": feed, "dump": sync["dump"]}
    lines = [f"The {named} ({who.id}): {outcome}.", *_details(state, cause)]
    if error:
        result |= {"error": error, "cause": cause}
    return result | _notice(who, f"{named} {outcome}", lines)


def _outcome(state: Mapping[str, Any]) -> str:
    if _answered_no(state):
        return REJECTED
    approved = state.get("answer", {}).get("approved")
    return DONE if approved else str(state["judged"]["outcome"])


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


def _details(state: Mapping[str, Any], cause: str) -> list[str]:
    decision = state.get("judged") or {}
    lines = [_plan_text(decision)] if decision else []
    if decision.get("next") != END and decision and not _answered_no(state):
        applied = decision["applied"]
        lines.append(
            f"{applied['applied']:,} applied, {applied['moved']:,} not applied because their "
            f"objects changed since the plan, {applied['done']:,} were already done."
        )
    if decision.get("stopped"):
        lines.append(_sentence(decision["stopped"]))
    return [*lines, _sentence(cause)] if cause else lines


def _plan_text(decision: Mapping[str, Any]) -> str:
    counts = decision["counts"]
    return (
        f"{counts['creates']:,} creates, {counts['updates']:,} updates, "
        f"{counts['deletes']:,} deletes, {counts['untouched']:,} untouched."
    )


def _sentence(text: str) -> str:
    text = text.rstrip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ")")) else ".")


def _notice(who: Who, subject: str, lines: list[str]) -> dict[str, str]:
    return {
        "subject": f"tidings {who.stage}: {subject}"[:_SUBJECT_CHARS_MAX],
        "message": "\n".join(lines),
    }


# Prefixes of the keys in the stage's bucket for syncs.
DUMPS = "dumps/"  # an object created here starts a sync
UPLOADS = "uploads/"  # dumps of syncs that a command starts
PLANS = "plans/"  # plans, one folder per sync
EXPORTS = "exports/"  # exports of the state's table
APPROVALS = "approvals/"  # an object per waiting sync, with the token for its answer
COMPLETE = "_SUCCESS"  # Spark and Hadoop write this file to a folder when the folder is complete
SUMMARY = "summary.json"
FAILURE = "failure.json"  # written by a failed job instead of a plan: {"failed": reason}

APPLY, ASK, END = "apply", "ask", "end"  # the possible steps after a plan
NOTHING, PLANNED, STOPPED, DONE = "nothing", "planned", "stopped", "done"

_ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^\x00-\x1f\x7f]+", re.ASCII)
_TYPE = re.compile(r"[^\x00-\x1f\x7f]+")
_COUNTS = ("applied", "moved", "done")


@dataclass(frozen=True, slots=True)
class Tables:
    """The names of the stage's DynamoDB tables, and their Region."""

    log: str
    state: str
    control: str
    region: str


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A request for a sync of the feed with the key *feed*.

    *options* are additional command-line options for the job.
    """

    feed: str
    dump: str
    dry_run: bool
    options: tuple[str, ...]

    def arguments(self, plan: str, tables: Tables) -> list[str]:
        """Return the job's arguments, except those for reading the state.

        *plan* is the URL of the plan's folder.
        """
        named = {
            "--feed": self.feed,
            "--dump": self.dump,
            "--log-table": tables.log,
            "--state-table": tables.state,
            "--control-table": tables.control,
            "--region": tables.region,
            "--plan": plan,
        }
        return [word for pair in named.items() for word in pair] + list(self.options)


def read_request(raw: object, bucket: str, feed_names: FeedNames) -> SyncRequest | None:
    """Parse a request; return None for an upload that starts no sync.

    *bucket* is the bucket that receives uploads.

    Raises:
        InvalidSync: a field is unknown, is missing or breaks its rule.
        InvalidFeed, UnknownFeed, FeedDeleted: see `FeedNames`.
    """
    if not isinstance(raw, dict):
        raise InvalidSync("must be a JSON object", value=raw)
    if set(raw) == {"key"}:
        raw = _uploaded(raw["key"], bucket)
        if raw is None:
            return None
    unknown = sorted(raw.keys() - _FIELDS)
    if unknown:
        raise InvalidSync(f"is not one of {', '.join(sorted(_FIELDS))}", field=str(unknown[0]))
    feed = raw.get("feed", DEFAULT_FEED)
    if not isinstance(feed, str):
        raise InvalidSync("must be a string", field="feed", value=feed)
    return SyncRequest(
        feed_names.key(feed), _dump(raw), _flag(raw, "dry_run", False), _options(raw)
    )


def prefix(id: str) -> str:
    """Return the prefix of all keys that the job of the sync *id* writes."""
    return f"{PLANS}{id}/"


def approval(id: str) -> str:
    """Return the key of the object with the token for the answer to the sync *id*."""
    return f"{APPROVALS}{id}"


def validate_request(
    request: SyncRequest | None, id: str, bucket: str, tables: Tables
) -> dict[str, Any]:
    """Return the input of the later steps; `wanted` in it is False if there are no later steps."""
    if request is None:
        return {"wanted": False}
    arguments = request.arguments(f"s3://{bucket}/{prefix(id)}", tables)
    return {
        "wanted": True,
        "feed": request.feed,
        "dump": request.dump,
        "dry_run": request.dry_run,
        "arguments": [*arguments, "--state", "scan"],
    }


def add_export(
    sync: Mapping[str, Any], id: str, bucket: str, export: str, through: int
) -> dict[str, Any]:
    """Return *sync* with the arguments to read the state from the export with the ARN *export*.

    *sync* is the result of `validate_request`.
    """
    folder = f"s3://{bucket}/{EXPORTS}{id}/AWSDynamoDB/{export.rpartition('/')[2]}/"
    where = ["--state", folder, "--through", str(through)]
    return {**sync, "arguments": [*sync["arguments"], *where]}


def decide_next_step(
    below: str, summary: Mapping[str, Any] | None, *, dry_run: bool
) -> dict[str, Any]:
    """Return the next step after the plan, as `next`, and the input of later steps.

    *below* is the result of `prefix` for the sync.

    Raises:
        PlanMissing: the job ended without an error and wrote no plan.
    """
    if summary is None:
        raise PlanMissing(f"{below}{SUMMARY} is missing")
    # Parts of a group may be applied in parallel, but the next group must wait for all of them.
    folders = dict.fromkeys(part["name"].rpartition("/")[0] for part in summary["parts"])
    ahead = [f"{below}{folder}/part-" for folder in folders]
    following, outcome = _following(summary, bool(ahead), dry_run)
    return {
        "next": following,
        "outcome": outcome,
        "through": summary["through"],
        "groups": ahead,
        "stopped": summary["stopped"],
        "counts": {name: summary[name] for name in _PLANNED},
        "applied": dict.fromkeys(_COUNTS, 0),
        "refused": None,
    }


def _following(summary: Mapping[str, Any], something: bool, dry_run: bool) -> tuple[str, str]:
    if summary["stopped"]:
        return (ASK if summary["allowable"] and not dry_run else END), STOPPED
    if not something:
        return END, NOTHING
    return (END, PLANNED) if dry_run else (APPLY, DONE)


def total(decision: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return *decision* after its first group was applied, with *results* for its parts.

    If parts could not be applied, `refused` has their number, and the key and the error of the
    first of these parts. The next groups are then removed.
    """
    failed = [each["refused"] for each in results if "refused" in each]
    refused = failed[0] | {"parts": len(failed)} if failed else None
    return {
        **decision,
        "groups": [] if refused else decision["groups"][1:],
        "applied": {
            name: decision["applied"][name] + sum(each[name] for each in results)
            for name in _COUNTS
        },
        "refused": refused,
    }


_PLANNED = ("creates", "updates", "deletes", "untouched")
_FIELDS = frozenset(
    {
        "feed",
        "dump",
        "types",
        "as_of",
        "deletes",
        "expect",
        "max_delete_share",
        "skip_bad",
        "dry_run",
    }
)


def _uploaded(key: object, bucket: str) -> dict[str, Any] | None:
    if not isinstance(key, str):
        raise InvalidSync("must be a string", field="key", value=key)
    feed, *names = key.removeprefix(DUMPS).split("/")
    if not key.startswith(DUMPS) or not feed or not names or not all(names):
        return None
    if len(names) == 1 and names[0][0] not in "._":
        return {"feed": feed, "dump": f"s3://{bucket}/{key}"}
    if len(names) > 1 and names[-1] == COMPLETE:
        return {"feed": feed, "dump": f"s3://{bucket}/{key.removesuffix(COMPLETE)}"}
    return None


def _dump(raw: Mapping[str, Any]) -> str:
    dump = raw.get("dump")
    if not isinstance(dump, str) or not _ADDRESS.fullmatch(dump):
        raise InvalidSync("must be an address, s3://bucket/key", field="dump", value=dump)
    if len(dump) > limits.DUMP_ADDRESS_CHARS_MAX:
        rule = f"must not be longer than {limits.DUMP_ADDRESS_CHARS_MAX} characters"
        raise InvalidSync(rule, field="dump", value=dump)
    return dump


def _options(raw: Mapping[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    types = _types(raw)
    if types:
        words += [f"--types={types}"]  # a type may begin with a dash
    if raw.get("as_of") is not None:
        watermark.parse(raw["as_of"])
        words += [f"--as-of={raw['as_of']}"]
    if not _flag(raw, "deletes", True):
        words += ["--no-deletes"]
    for name in ("expect", "skip_bad"):
        if raw.get(name) is not None:
            value = raw[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidSync("must be a whole number of at least 0", field=name, value=value)
            words += [f"--{name.replace('_', '-')}", str(value)]
    if raw.get("max_delete_share") is not None:
        words += ["--max-delete-share", str(_share(raw))]
    return tuple(words)


def _types(raw: Mapping[str, Any]) -> str:
    types = raw.get("types") or []
    if not isinstance(types, list) or not all(
        isinstance(each, str) and _TYPE.fullmatch(each) for each in types
    ):
        raise InvalidSync("must be a list of types", field="types", value=types)
    return as_text(types) if types else ""


def _flag(raw: Mapping[str, Any], name: str, default: bool) -> bool:
    value = raw.get(name, default)
    if not isinstance(value, bool):
        raise InvalidSync("must be true or false", field=name, value=value)
    return value


def _share(raw: Mapping[str, Any]) -> float:
    value = raw["max_delete_share"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        rule = "must be a number from 0 to 1"
        raise InvalidSync(rule, field="max_delete_share", value=value)
    return value
