"""List prices of AWS in dollars, used by docs/operations/COSTS.md and the dashboard.

The prices are those of one Region and date, without free tiers and discounts. If your prices
differ, change this table and run `python -m bench.costs_page`.
"""

from __future__ import annotations

from dataclasses import dataclass

REGION = "us-east-1"
DATE = "February 2026"

_DYNAMODB = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
_LAMBDA = "https://aws.amazon.com/lambda/pricing/"
_API = "https://aws.amazon.com/api-gateway/pricing/"
_EVENTS = "https://aws.amazon.com/eventbridge/pricing/"
_CLOUDWATCH = "https://aws.amazon.com/cloudwatch/pricing/"
_S3 = "https://aws.amazon.com/s3/pricing/"
_KMS = "https://aws.amazon.com/kms/pricing/"
_OUT = "https://aws.amazon.com/ec2/pricing/on-demand/"


@dataclass(frozen=True, slots=True)
class Price:
    """A price: *per* units cost *dollars*. *unit* is what is counted."""

    dollars: float
    per: int
    unit: str
    source: str

    def __str__(self) -> str:
        amount = f"${self.dollars:.10f}".rstrip("0")
        dollars, _, cents = amount.partition(".")
        return f"{dollars}.{cents.ljust(2, '0')} / {self.per:,}"


WRITE_UNIT = Price(0.625, 1_000_000, "write unit of 1 KB", _DYNAMODB)
READ_UNIT = Price(0.125, 1_000_000, "strong read unit of 4 KB", _DYNAMODB)
TABLE_GB = Price(0.25, 1, "GB of a table, a month", _DYNAMODB)
RECOVERY_GB = Price(0.20, 1, "GB of point-in-time recovery, a month", _DYNAMODB)
INVOCATION = Price(0.20, 1_000_000, "invocation", _LAMBDA)
GB_SECOND = Price(13.3334, 1_000_000, "GB-second, arm64", _LAMBDA)
SNAPSHOT_GB_SECOND = Price(1.5046, 1_000_000, "GB-second of a kept snapshot", _LAMBDA)
SCHEDULE = Price(1.00, 1_000_000, "call by EventBridge Scheduler", _EVENTS)
HTTP_REQUEST = Price(1.00, 1_000_000, "request of the HTTP API", _API)
MESSAGE = Price(1.00, 1_000_000, "WebSocket message of 32 KB", _API)
CONNECTION_MINUTE = Price(0.25, 1_000_000, "minute of a WebSocket", _API)
ALARM = Price(0.10, 1, "alarm, a month", _CLOUDWATCH)
COMPOSITE = Price(0.50, 1, "composite alarm, a month", _CLOUDWATCH)
DASHBOARD = Price(3.00, 1, "dashboard, a month", _CLOUDWATCH)
METRIC = Price(0.30, 1, "metric of our own, a month", _CLOUDWATCH)
LOG_GB = Price(0.50, 1, "GB of logs taken in", _CLOUDWATCH)
LOG_KEPT_GB = Price(0.03, 1, "GB of logs kept, a month", _CLOUDWATCH)
KEY = Price(1.00, 1, "KMS key, or one of its first two rotations, a month", _KMS)
S3_PUT = Price(0.005, 1000, "PUT to S3", _S3)
S3_GB = Price(0.023, 1, "GB in S3, a month", _S3)
OUT_GB = Price(0.09, 1, "GB to the internet", _OUT)
