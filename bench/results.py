"""The page `bench/RESULTS.md`; a run replaces the sections that it measured."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
_HEAD = """# Measurements

Written by `make bench`, or a section by `python -m bench --save NAME`. Figures of one machine, two
shared cores: {machine}. Compare figures of one section with each other: the machine's own speed
moves by half from one hour to the next.

"""


def save(found: Mapping[str, str], page: Path = RESULTS) -> None:
    """Put each section in the place of the earlier one of its title, new ones at the end."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    _, *earlier = text.split("\n## ")
    kept = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in earlier}
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    sections = "\n".join((kept | dict(found)).values())
    page.write_text(_HEAD.format(machine=machine) + sections, encoding="utf-8")
