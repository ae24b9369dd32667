"""Refuses who asks for it."""

from typing import Any


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    query = event.get("queryStringParameters") or {}
    return {"statusCode": int(query.get("status", 200))}
