"""What happens by itself, some seconds later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 120  # a mapping delivers within one, a schedule within sixty; a busy machine needs more
_EVERY_S = 0.5


def eventually(look: Callable[[], Found], what: str, seconds: float = SECONDS) -> Found:
    """What *look* finds, once it is something."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(_EVERY_S)
    return found
