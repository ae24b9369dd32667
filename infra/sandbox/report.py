"""The report of a run: for people as Markdown, for programs as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidings.core.version import VERSION

from infra.sandbox import catalogue
from infra.sandbox.ground import Ground
from infra.sandbox.record import Record
from infra.sandbox.steps import Outcome, Result, Step, flat

_NOT_REACHED = Result(Outcome.COULD_NOT, "it was not reached")
_NOT_ASKED = Result(Outcome.COULD_NOT, "it was not asked for")
COMMAND = "python -m infra.sandbox"


def steps() -> list[Step[Ground]]:
    return [*flat(catalogue.PLAN), catalogue.DESTROY]


def as_json(record: Record) -> dict[str, Any]:
    """Everything; no address and no account, so that it can be given to others."""
    return {
        "run": record.run,
        "version": VERSION,
        "place": record.place,
        "region": record.region,
        "began": record.began,
        "dollars_at_most": round(record.dollars, 2),
        "options": dict(record.options),
        "steps": [_document(step, _result(record, step)) for step in steps()],
    }


def markdown(record: Record) -> str:
    """
    A table of all steps, the figures of each that ran, and how to run what was not.
    """
    return "\n".join([*_head(record), *_table(record), *_figures(record), *_lacking(record)])


def _document(step: Step[Ground], result: Result) -> dict[str, Any]:
    told = {
        "step": step.name,
        "shows": step.shows,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "figures": dict(result.figures),
        "seconds": round(result.seconds, 1),
    }
    if result.outcome is Outcome.COULD_NOT:
        told["command"] = _command(step)
    return told


def _result(record: Record, step: Step[Ground]) -> Result:
    result = record.results.get(step.name)
    if result is not None:
        return result
    chosen = record.options.get("only") or ()
    left_out = record.options.get("without") or ()
    if step.name in left_out or (chosen and step.name not in chosen):
        return _NOT_ASKED
    return _NOT_REACHED


def _command(step: Step[Ground]) -> str:
    """What shows it: on AWS, whatever this run was on."""
    asked = [COMMAND, f"--only {step.name}", *([step.asks] if step.asks else [])]
    return COMMAND if step.name == catalogue.DESTROY.name else " ".join(asked)


def _head(record: Record) -> Iterator[str]:
    counts = [_result(record, step).outcome for step in steps()]
    told = ", ".join(f"{counts.count(each)} {each}" for each in Outcome)
    yield f"# A sandbox on {record.place}"
    yield ""
    yield f"Tidings {VERSION}, run `{record.run}` of {record.began}, Region {record.region}."
    yield f"Of {len(counts)} steps: {told}."
    seconds = sum(result.seconds for result in record.results.values())
    yield f"They took {seconds / 60:.0f} minutes, added up; some run beside each other."
    yield ""


def _table(record: Record) -> Iterator[str]:
    yield "| step | shows that | outcome | s |"
    yield "|---|---|---|---|"
    for step in steps():
        result = _result(record, step)
        outcome = f"**{result.outcome}**" if result.outcome is Outcome.FAILED else result.outcome
        yield f"| `{step.name}` | {step.shows} | {outcome} | {result.seconds:.0f} |"
    yield ""


def _figures(record: Record) -> Iterator[str]:
    yield "## Figures"
    yield ""
    for step in steps():
        result = _result(record, step)
        if result.figures or result.outcome is Outcome.FAILED:
            yield f"### {step.name}"
            yield ""
            if result.reason:
                yield from (_cell(result.reason), "")
            yield from _rows(result)


def _rows(result: Result) -> Iterator[str]:
    if not result.figures:
        return
    yield "| what | figure |"
    yield "|---|---|"
    yield from (f"| {_cell(str(what))} | {_cell(str(n))} |" for what, n in result.figures.items())
    yield ""


def _lacking(record: Record) -> Iterator[str]:
    lacking = [step for step in steps() if _result(record, step).outcome is Outcome.COULD_NOT]
    yield "## What could not be run"
    yield ""
    if not lacking:
        yield "Nothing: every step was run."
        return
    yield "| step | why | what shows it, with credentials of AWS |"
    yield "|---|---|---|"
    for step in lacking:
        why = _cell(_result(record, step).reason)
        yield f"| `{step.name}` | {why} | `{_command(step)}` |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
