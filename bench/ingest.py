"""Batched ingest through the twin beside one operation an item and request."""

from __future__ import annotations

import json
import time

import httpx
from tidings.twin.running import Twin

from .sections import Section, rate
from .workload import ndjson, operations

_SINGLES = 1_000
_BATCHED = 100_000
_BATCH = 500
_TARGET = 50


def _alone(client: httpx.Client) -> float:
    bodies = [json.dumps(raw).encode() for raw in operations(_SINGLES)]
    started = time.perf_counter()
    for body in bodies:
        client.post(
            "/", content=body, headers={"content-type": "application/json"}
        ).raise_for_status()
    return _SINGLES / (time.perf_counter() - started)


def _batched(client: httpx.Client) -> float:
    raws = list(operations(_BATCHED))
    bodies = [ndjson(raws[at : at + _BATCH]) for at in range(0, _BATCHED, _BATCH)]
    started = time.perf_counter()
    for body in bodies:
        client.post(
            "/", content=body, headers={"content-type": "application/x-ndjson"}
        ).raise_for_status()
    return _BATCHED / (time.perf_counter() - started)


def measure() -> Section:
    with Twin() as twin, httpx.Client(base_url=twin.url, timeout=30) as client:
        _alone(client)  # warm
        single = _alone(client)
        batched = _batched(client)
    return Section(
        "Ingest through the twin",
        f"NDJSON of {_BATCH} a request at least {_TARGET} times one operation a request",
        [
            ("one operation a request", rate(single, 1)),
            (f"{_BATCH} operations a request", rate(batched, 1)),
            ("ratio", f"{batched / single:.0f}"),
        ],
        met=batched / single >= _TARGET,
        notes=[
            "One client, one request at a time, followers running. oplogd took some 7,000 single "
            "POSTs a second on such a machine, and could lose the last second of them."
        ],
    )
