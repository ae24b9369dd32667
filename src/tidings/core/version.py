"""The version of Tidings, and how to install its extras.

The version is a constant, because a deployed function has no package metadata.
"""

from __future__ import annotations

VERSION = "0.1.0"


def how_to_install(extra: str) -> str:
    """Return how to install *extra*; no index has Tidings, so the command needs a checkout."""
    command = f"pip install '.[{extra}]'"
    return f"install the extra `{extra}`, in a checkout: {command} (docs/start/INSTALL.md)"
