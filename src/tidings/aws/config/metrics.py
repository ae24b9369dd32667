"""
Metrics as a stage writes them to CloudWatch.

The alarms, the dashboard and OPERATIONS.md read the catalogue, `tidings.core.metrics`.
"""

from __future__ import annotations

from tidings.core.metrics import METRICS, Metric

__all__ = ["FOR_ALARMS", "METRICS", "NAMESPACE", "SERVICE_VARIABLE", "Metric", "service"]

NAMESPACE = "Tidings"
SERVICE_VARIABLE = "POWERTOOLS_SERVICE_NAME"  # where Powertools looks for the service
# All that a stage writes unless its settings ask for more.
FOR_ALARMS = frozenset({"Attention", "Behind"})


def service(stage: str) -> str:
    """Return the one dimension of every metric; it separates stages that share an account."""
    return f"tidings-{stage}"
