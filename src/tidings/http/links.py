"""Build absolute links under the address that the client uses, and parse `Accept`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WEIGHT = re.compile(r";\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)", re.IGNORECASE)


def quality(accept: str, media_type: str) -> float:
    """
    Return the weight of *media_type* in *accept*, by the most specific range; 0: not acceptable.
    """
    weights = _weights(accept)
    general = media_type.partition("/")[0] + "/*"
    return next((weights[each] for each in (media_type, general, "*/*") if each in weights), 0.0)


def named_quality(accept: str, media_type: str) -> float:
    """Return the weight of *media_type* if *accept* names it, else 0."""
    return _weights(accept).get(media_type, 0.0)


def _weights(accept: str) -> dict[str, float]:
    """
    Return the weight of each media range. Parameters are ignored; of duplicates the first one
    counts.
    """
    weights: dict[str, float] = {}
    for part in accept.split(","):
        name = part.partition(";")[0].strip().lower()
        weight = _WEIGHT.search(part)
        weights.setdefault(name, min(1.0, float(weight[1])) if weight else 1.0)
    return weights


ROOT = ("changes", "diagnostics", "cluster", "config", "health")
_FORWARDED_HOST = re.compile(r'(?:^|[;,\s])host="?([^";,\s]+)"?', re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+", re.ASCII)
_JSON = "application/json"


def base_url(headers: Mapping[str, str], prefix: str) -> str:
    """
    Return scheme, host and *prefix* by the request's *headers*; those of proxies take precedence.
    """
    proto = headers.get("x-forwarded-proto", "http").partition(",")[0].strip()
    scheme = proto if proto in ("http", "https") else "http"
    return f"{scheme}://{host_of(headers)}{prefix}"


def host_of(headers: Mapping[str, str]) -> str:
    """Return the host that the client addressed; of several proxies, the last one counts."""
    forwarded = _FORWARDED_HOST.findall(headers.get("forwarded", ""))
    host = forwarded[-1] if forwarded else headers.get("x-forwarded-host", headers.get("host", ""))
    return host if _HOST.fullmatch(host) else "localhost"


def root(base: str) -> dict[str, str]:
    """Return the links of `GET /` for clients that accept JSON."""
    return {name: f"{base}/{name}" for name in ROOT}


def wants_links(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return True if the client explicitly prefers the JSON links to a stream of events."""
    if method != "GET" or path != "/":
        return False
    accept = headers.get("accept", "")
    return named_quality(accept, _JSON) > named_quality(accept, "text/event-stream")
