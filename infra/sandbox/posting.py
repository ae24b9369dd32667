"""Operations of steps, posted as PROTOCOL.md tells producers to: again where it says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx

from infra.sandbox.ground import Ground
from infra.sandbox.steps import NotSo

WAIT_S = 90  # for a function that starts cold, on an emulator in a process of its own
ATTEMPTS = 6  # half a minute in all: a new table splits, a throttle passes
_AGAIN = (429, 500, 502, 503, 504)


def post(ground: Ground, operations: Sequence[dict[str, Any]]) -> list[str]:
    """
    Their ids.

    Raises:
        NotSo: they were refused, or not taken after `ATTEMPTS`.
    """
    headers = {"Prefer": "return=representation", "Idempotency-Key": uuid4().hex}
    url = f"{ground.addresses.feed}/ops"
    for attempt in range(ATTEMPTS):
        answer = httpx.post(url, json=operations, headers=headers, timeout=WAIT_S)
        if answer.status_code not in _AGAIN:
            break
        ground.sleep(2**attempt / 2)
    if answer.status_code != httpx.codes.OK:
        raise NotSo(f"POST of {len(operations)}: {answer.status_code} {answer.text[:200]}")
    ids: list[str] = answer.json()["ids"]
    return ids
