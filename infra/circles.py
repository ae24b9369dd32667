"""
Which functions may reach themselves, read off the blueprint.

Lambda takes such a chain of calls for a mistake and ends it after some 16, unless the function says
that it is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidings.aws.config import deployment

_WRITES = frozenset(f"dynamodb:{verb}Item" for verb in ("BatchWrite", "Delete", "Put", "Update"))


def _circling(functions: Iterable[deployment.Function]) -> frozenset[str]:
    """Those of *functions* that may be reached by what they set off, alone or through others."""
    wakes = {function.name: _woken_by(function) for function in functions}
    return frozenset(name for name in wakes if name in _reached(wakes, name))


def _woken_by(function: deployment.Function) -> frozenset[str]:
    """By a call of its own, or by a write where a stream is read. Nothing starts a schedule."""
    written = {grant.table for grant in function.grants if _WRITES & {*grant.actions}}
    sources = deployment.STREAM_SOURCES
    return frozenset((*function.invokes, *(s.function for s in sources if s.table in written)))


def _reached(wakes: Mapping[str, frozenset[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = set(wakes[start])
    while ahead:
        reached |= ahead
        ahead = {after for name in ahead for after in wakes[name]} - reached
    return reached


WOKEN = frozenset(name for function in deployment.FUNCTIONS for name in function.invokes)
CIRCLING = _circling(deployment.FUNCTIONS)
