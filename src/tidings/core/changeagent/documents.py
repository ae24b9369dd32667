"""
Texts that an operator sets for a feed or the whole deployment.

Its configuration, its users, whether it is up. A change counts within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONFIGURATION, USERS, HEALTH = "configuration", "users", "health"
DEPLOYMENT = "-"  # stands for all feeds; no feed can be named so


@dataclass(frozen=True, slots=True)
class OperatorDocument:
    """*text* is empty where nothing was ever written. *version* guards every update."""

    text: str = field(default="", repr=False)
    version: int = 0
