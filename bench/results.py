"""The result of a measurement, and `bench/RESULTS.md`, which keeps the latest of each."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
_HEAD = """# Measurements

Written by `make bench`, or one section by `python -m bench --save NAME`. Figures of one machine,
two shared cores: {machine}. Compare only figures within a section: the speed of the machine itself
varies by half from one hour to the next.

"""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: *rows* are (name, figure) pairs; *met* is None without a target."""

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


def save(found: Mapping[str, str], page: Path = RESULTS) -> None:
    """Replace the sections of *page* with the same titles, and append the new ones."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    _, *earlier = text.split("\n## ")
    kept = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in earlier}
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    sections = "\n".join((kept | dict(found)).values())
    page.write_text(_HEAD.format(machine=machine) + sections, encoding="utf-8")


def rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f} a second"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that *share* (0 to 1) of *values* are below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
