"""What keeps an agent from running; the text is one sentence for a person."""

from __future__ import annotations


class Problem(Exception):
    """It cannot start, or cannot go on."""
