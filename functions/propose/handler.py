"""`POST /changes`: a change as changeagent's clients post it; its id is the answer."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, changes_app, changes_http
from tidings.aws.http_edge import http_edge
from tidings.core.errors import TidingsError


@http_edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    origins = app.settings().cors_origins
    try:
        number = changes_app.proposer().accept(changes_http.proposal_from(event))
    except TidingsError as error:
        return changes_http.refused(event, error, origins)
    return changes_http.told_json(event, {"_id": number}, origins)
