"""A file that Spark cannot read, by its name and the reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidings.sync.bad_lines import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

# How Spark names the file that it failed on, and Java the reason.
_FILE = re.compile(r"error while reading file (\S+)\.\s")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_CUT = "Unexpected end of input stream"  # what Java says of gzip data that end early
_GZIP = ".gz"


class BadFile(Exception):
    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        rule = f"what ends in {_GZIP} must be gzip" if path.endswith(_GZIP) else "cannot be read"
        super().__init__(f"{path}: {rule}: {reason}")

    def with_names(self, names: Mapping[str, str]) -> BadFile:
        """The same, where a path that is a copy is called by what it is a copy of."""
        return BadFile(names.get(self.path, self.path), self.reason)


def is_cut(said: str) -> bool:
    """Whether Spark failed because gzip data end early."""
    return _CUT in said


def named(said: str) -> BadFile | None:
    """The file that Spark failed on, where it was one."""
    file, causes = _FILE.search(said), _CAUSE.findall(said)
    return BadFile(shown(file[1]), causes[-1]) if file and causes else None
