"""
The routes of changeagent's clients: what they ask and what they are answered.

An error is `{"error":"..."}` here, as they know it, and a 401 has no body.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tidings.aws.gateway.http_events import RETRY_AFTER_S, headers_for
from tidings.core.auth.guard import credential_from
from tidings.core.changeagent.submit import Proposal
from tidings.core.errors import BelowFloor, Rejected, TidingsError, TooManyRequests, Unavailable
from tidings.core.model.feeds import DEFAULT_FEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Credential

REALM = 'Basic realm="changeagent"'
JSON, TEXT, YAML = "application/json", "text/plain", "application/yaml"
UNAVAILABLE = "the store did not answer; try again, with an Idempotency-Key it is appended once"


def proposal_from(event: Mapping[str, Any]) -> Proposal:
    """The change that a client posts."""
    headers = event.get("headers") or {}
    return Proposal(
        feed=feed_of(event),
        body=body_of(event),
        content_type=headers.get("content-type", ""),
        key=headers.get("idempotency-key"),
        credential=credential_of(event),
    )


def feed_of(event: Mapping[str, Any]) -> str:
    return str((event.get("pathParameters") or {}).get("feed", DEFAULT_FEED))


def body_of(event: Mapping[str, Any]) -> bytes:
    body = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()


def content_type_of(event: Mapping[str, Any]) -> str:
    """Without its parameters, in lower case."""
    given = (event.get("headers") or {}).get("content-type", "")
    return str(given).partition(";")[0].strip().lower()


def credential_of(event: Mapping[str, Any]) -> Credential | None:
    return credential_from((event.get("headers") or {}).get("authorization"))


def told(
    event: Mapping[str, Any],
    status: int,
    body: str,
    kind: str,
    origins: tuple[str, ...],
) -> dict[str, Any]:
    """An answer with a body of the content type *kind*, or without either."""
    origin = str((event.get("headers") or {}).get("origin", ""))
    headers = {**headers_for(origin, origins), **({"content-type": kind} if kind else {})}
    return {"statusCode": status, "headers": headers, "body": body}


def told_json(
    event: Mapping[str, Any], body: object, origins: tuple[str, ...], status: int = 200
) -> dict[str, Any]:
    return told(event, status, spelled(body), JSON, origins)


def refused(
    event: Mapping[str, Any], error: TidingsError, origins: tuple[str, ...]
) -> dict[str, Any]:
    """
    Raises:
        TidingsError: *error* is a fault of ours, not the client's or the weather's.
    """
    origin = str((event.get("headers") or {}).get("origin", ""))
    status, headers, body = refusal_of(error)
    return {
        "statusCode": status,
        "headers": {**headers_for(origin, origins), **headers},
        "body": body,
    }


def refusal_of(error: TidingsError) -> tuple[int, dict[str, str], str]:
    """Status, headers and body; see `refused`."""
    if not isinstance(error, Rejected):
        return _unavailable(error)
    if error.status == 401:
        return 401, {"www-authenticate": REALM}, ""
    body: dict[str, object] = {"error": str(error)}
    if isinstance(error, BelowFloor):
        body["floor"] = error.floor
    headers = {"content-type": JSON}
    if isinstance(error, TooManyRequests):
        headers["retry-after"] = str(error.retry_after_s)
    return error.status, headers, spelled(body)


def _unavailable(error: TidingsError) -> tuple[int, dict[str, str], str]:
    if not isinstance(error, Unavailable):
        raise error
    headers = {"content-type": JSON, "retry-after": str(RETRY_AFTER_S)}
    return 503, headers, spelled({"error": UNAVAILABLE})


def spelled(body: object) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
