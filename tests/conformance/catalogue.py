"""The cases: `cases/*.yaml`, each a law of docs/PROTOCOL.md with its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "cases"
_KEYS = {
    "id", "law", "given", "when", "then", "transports", "writes_nothing", "each",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One case, on one transport and with one row of its table.

    *id* starts with the number of its rule. *writes_nothing*: the runner proves that `when`
    left the log as it was. *is_further_row*: its table has another row before it.
    """

    id: str
    law: str
    steps: Sequence[tuple[str, Any]]
    transport: str
    writes_nothing: bool
    row: Mapping[str, Any] = field(default_factory=dict)
    is_further_row: bool = False

    @property
    def rule(self) -> str:
        return self.id.partition("-")[0]

    @property
    def section(self) -> str:
        """Return the number of the section. The cases of a section share a feed."""
        return self.rule.partition(".")[0]

    @property
    def needs(self) -> set[str]:
        """The transports it cannot do without."""
        over = {what["over"] for _, what in self.steps if isinstance(what, dict) and "over" in what}
        return over | ({self.transport} if self.transport else set())


class WrongCase(Exception):
    """A file that does not say what it means."""


@cache
def cases() -> list[Case]:
    """Every case of every file, in the order of their names.

    Raises:
        WrongCase: a case lacks a part, or has an unknown one.
    """
    return [case for path in sorted(FOLDER.glob("*.yaml")) for case in _in_file(path)]


def _in_file(path: Path) -> Iterator[Case]:
    for raw in yaml.load(path.read_text(), Loader=yaml.CSafeLoader):
        unknown = set(raw) - _KEYS
        if unknown or not raw.get("id") or not raw.get("law") or not raw.get("then"):
            raise WrongCase(f"{path.name}: {raw.get('id', raw)}: {sorted(unknown)}")
        for transport in raw.get("transports", [""]):
            for at, row in enumerate(raw.get("each", [{}])):
                yield _case(raw, transport, row, is_further_row=at > 0)


def _case(
    raw: Mapping[str, Any], transport: str, row: Mapping[str, Any], *, is_further_row: bool
) -> Case:
    name = "-".join(part for part in (raw["id"], transport, row.get("name", "")) if part)
    return Case(
        id=name.replace(" ", "-"),
        law=raw["law"],
        steps=[_step(step) for part in ("given", "when", "then") for step in raw.get(part, ())],
        transport=transport,
        writes_nothing=raw.get("writes_nothing", False),
        row=row,
        is_further_row=is_further_row,
    )


def _step(raw: Mapping[str, Any]) -> tuple[str, Any]:
    if len(raw) != 1:
        raise WrongCase(f"a step is one verb, this is {sorted(raw)}")
    return next(iter(raw.items()))
