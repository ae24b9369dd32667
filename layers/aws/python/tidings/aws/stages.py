"""Names of a deployed stage that its templates and its operator's command share."""

from __future__ import annotations

CONTROL_OUTPUT = "ControlTable"  # of the stack: the table that holds the profiles
FEEDS_OUTPUT = "Feeds"  # of the stack: the names of its feeds, comma-separated


def stack_name(stage: str) -> str:
    return f"tidings-{stage}"
