"""
The metrics that a stage writes to CloudWatch.

The alarms, the dashboard and OPERATIONS.md use the catalogue, `tidings.core.metrics`.
"""

from __future__ import annotations

from tidings.core.metrics import METRICS, Metric

__all__ = ["FOR_ALARMS", "METRICS", "NAMESPACE", "SERVICE_VARIABLE", "Metric", "service"]

NAMESPACE = "Tidings"
SERVICE_VARIABLE = "POWERTOOLS_SERVICE_NAME"  # the variable from which Powertools reads the service
# The metrics written if the settings do not request all.
FOR_ALARMS = frozenset({"Attention", "Behind"})


def service(stage: str) -> str:
    """Return the only dimension of each metric; it separates stages that share an account."""
    return f"tidings-{stage}"
