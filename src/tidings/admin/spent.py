"""The costs of a stage on one day, by the tag of its resources, from Cost Explorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from tidings.aws.config.stages import STAGE_TAG

REQUEST_DOLLARS = 0.01  # AWS bills each requested page
REGION = "us-east-1"  # the endpoint of Cost Explorer for all Regions
_METRIC = "UnblendedCost"
_LEAST = 0.00005  # dollars; smaller amounts would show as 0.0000

Spent = Mapping[str, Mapping[str, float]]  # dollars by stage and service


def on(day: date, explorer: Any) -> Spent:
    """
    Return dollars by stage and service on *day* (UTC), in one request for all stages.

    Resources without the tag are under the stage "". So are all resources before the tag was
    activated for cost allocation.
    """
    request: dict[str, Any] = {
        "TimePeriod": {"Start": day.isoformat(), "End": (day + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": [_METRIC],
        "GroupBy": [{"Type": "TAG", "Key": STAGE_TAG}, {"Type": "DIMENSION", "Key": "SERVICE"}],
    }
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    while True:
        page = explorer.get_cost_and_usage(**request)
        for result in page["ResultsByTime"]:
            for group in result["Groups"]:
                tag, service = group["Keys"]
                dollars = float(group["Metrics"][_METRIC]["Amount"])
                if dollars >= _LEAST:
                    found[tag.partition("$")[2]][service] = dollars
        if "NextPageToken" not in page:
            return found
        request["NextPageToken"] = page["NextPageToken"]


def document(spent: Spent, stage: str, day: date) -> dict[str, Any]:
    """
    Return the costs of one *stage*, highest first; "tagged" is false if no resource has the tag.
    """
    services = sorted(spent.get(stage, {}).items(), key=lambda each: -each[1])
    return {
        "day": day.isoformat(),
        "dollars": round(sum(dollars for _, dollars in services), 4),
        "services": {service: round(dollars, 4) for service, dollars in services},
        "tagged": any(spent),
    }
