"""What a client accepts, by the field `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re

_WEIGHT = re.compile(r";\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)", re.IGNORECASE)


def quality(accept: str, media_type: str) -> float:
    """Return the weight of *media_type* in *accept*, by the most specific range; 0: refused."""
    weights = _weights(accept)
    general = media_type.partition("/")[0] + "/*"
    return next((weights[each] for each in (media_type, general, "*/*") if each in weights), 0.0)


def named_quality(accept: str, media_type: str) -> float:
    """Return the weight of *media_type* if *accept* names it, else 0."""
    return _weights(accept).get(media_type, 0.0)


def _weights(accept: str) -> dict[str, float]:
    """The weight of each range; one with parameters counts as without, the first one wins."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        name = part.partition(";")[0].strip().lower()
        weight = _WEIGHT.search(part)
        weights.setdefault(name, min(1.0, float(weight[1])) if weight else 1.0)
    return weights
