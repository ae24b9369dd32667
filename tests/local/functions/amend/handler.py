"""Does nothing."""

from typing import Any


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return {}
