"""What a measurement reports: its figures, its target, and whether that was met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Section:
    """*rows* are (what, figure); *met* None where there is no target."""

    title: str
    target: str
    rows: Sequence[tuple[str, str]]
    met: bool | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        verdict = {True: "met", False: "**missed**", None: "recorded"}[self.met]
        lines = [f"## {self.title}", "", f"Target: {self.target} ({verdict}).", ""]
        lines += ["| what | figure |", "|---|---|"]
        lines += [f"| {what} | {figure} |" for what, figure in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f} a second"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which *share* (0..1) of *values* lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
