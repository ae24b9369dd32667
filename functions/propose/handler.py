"""`POST /changes`: a change as changeagent's clients post it; its id is the answer."""

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
        number = changeagent.proposer().accept(changes.proposal_from(event))
    except TidingsError as error:
        return changes.refused(event, error, origins)
    return changes.told_json(event, {"_id": number}, origins)
