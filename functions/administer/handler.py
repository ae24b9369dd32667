"""What operators ask for: `/health`, `/config`, `/cluster` and `/diagnostics`."""

from __future__ import annotations

from typing import Any

from tidings.aws.gateway.http_edge import http_edge
from tidings.aws.web import changes
from tidings.aws.wiring import adapters, changeagent
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = adapters.settings().cors_origins
    try:
        status, kind, body = changeagent.administration().answer(event)
    except TidingsError as error:
        return changes.refused(event, error, origins)
    return changes.told(event, status, body, kind, origins)
