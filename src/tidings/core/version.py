"""The version of Tidings, and how to install its extras.

The version is a constant, because a deployed function has no package metadata.
"""

from __future__ import annotations

VERSION = "0.1.0"


def how_to_install(extra: str) -> str:
    """Return the command that installs *extra*; no index has Tidings, so it needs a checkout."""
    return f"install the extra in a checkout of Tidings: pip install '.[{extra}]'"
