"""The catalogue of metrics.

A stage writes the metrics to CloudWatch; a server exports them at `/metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str  # a CloudWatch unit
    meaning: str
    measured: bool = False  # True if each sweep measures the value; then values are not summed
    stage_only: bool = False  # True if a server never counts it


METRICS = (
    Metric(
        "Attention", "Count", "metrics above their limit that need an operator now", measured=True
    ),
    Metric(
        "Behind",
        "Count",
        "metrics above their limit that need an operator if that persists",
        measured=True,
    ),
    Metric("OperationsIngested", "Count", "operations acknowledged to producers"),
    Metric("RequestsRejected", "Count", "requests rejected with a 4xx status"),
    Metric("CorrectionsApplied", "Count", "corrections of a plan that are in the log"),
    Metric("CorrectionsMoved", "Count", "corrections dropped because their objects had changed"),
    Metric(
        "FollowerLag",
        "Count",
        "pages between the head of the log and a follower's checkpoint",
        measured=True,
    ),
    Metric(
        "FollowerAge",
        "Seconds",
        "age of the oldest page that a follower has not processed",
        measured=True,
    ),
    Metric("WakeupsMissed", "Count", "followers that were not woken for a waiting page"),
    Metric("FollowerPages", "Count", "pages processed by followers"),
    Metric("HolesFilled", "Count", "page numbers without a page that were filled"),
    Metric("FollowerFellOff", "Count", "followers that need a page older than the log"),
    Metric("FramesSent", "Count", "WebSocket messages delivered"),
    Metric(
        "SendsUnknown",
        "Count",
        "WebSocket messages with an unknown result; the client was disconnected",
    ),
    Metric(
        "SendsRefused",
        "Count",
        "WebSocket messages refused permanently; the client was disconnected",
    ),
    Metric("OutboxAge", "Seconds", "age of the oldest message in the outbox", measured=True),
    Metric(
        "LettersForwarded", "Count", "messages of the outbox appended to the log", stage_only=True
    ),
    Metric(
        "LettersRefused",
        "Count",
        "messages of the outbox set aside because their feed refused them",
        stage_only=True,
    ),
    Metric(
        "WritesCaptured", "Count", "writes of captured tables appended to the log", stage_only=True
    ),
    Metric(
        "WritesRefused",
        "Count",
        "writes of captured tables set aside because they cannot be mapped",
        stage_only=True,
    ),
    Metric("ListenersRegistered", "Count", "accepted registrations of listeners"),
    Metric("RegistrationsRefused", "Count", "refused registrations of listeners"),
    Metric(
        "ConnectionsClosed",
        "Count",
        "connections closed because they were too slow, lagged too far or were too old",
    ),
    Metric("ConnectionsGone", "Count", "lost connections that were removed"),
    Metric(
        "ConsumerLag",
        "Count",
        "pages between the head of the log and its slowest consumer",
        measured=True,
    ),
    Metric(
        "ConsumersLate",
        "Count",
        "named consumers that hold the log beyond its retention",
        measured=True,
    ),
    Metric(
        "ConsumersFellOff",
        "Count",
        "named consumers that need a page older than the log",
        measured=True,
    ),
    Metric("ArchiveLag", "Seconds", "age of the oldest page that is not archived", measured=True),
    Metric("PartsArchived", "Count", "parts added to the archive"),
    Metric("PartsBroken", "Count", "unreadable parts of the archive"),
    Metric("RelayPages", "Count", "pages copied by chained feeds"),
    Metric("RelayRetries", "Count", "retries of requests to an upstream"),
    Metric(
        "RelayLag",
        "Count",
        "pages between the head of an upstream and its chained feed",
        measured=True,
    ),
    Metric("RelaysStanding", "Count", "chained feeds that wait for an operator", measured=True),
    Metric(
        "RelayFellOff", "Count", "chained feeds that needed a page older than the upstream's log"
    ),
    Metric(
        "RelayBucketsMended",
        "Count",
        "buckets of a copied state that differed from the upstream and were replaced",
    ),
    Metric(
        "RelayRoleChanges", "Count", "role changes of chained feeds between leader and follower"
    ),
    Metric("CoordinatorLost", "Count", "failed requests to the coordinator of a cluster"),
    Metric(
        "RelayUpstreamAge",
        "Seconds",
        "time since a chained feed last read its upstream",
        measured=True,
    ),
    Metric(
        "RelayMasterAge",
        "Seconds",
        "time since any relay on the way last read the master",
        measured=True,
    ),
    Metric("SweepStepsFailed", "Count", "failed steps of a sweep, for a feed or for connections"),
    Metric("PagesLost", "Count", "missing pages above the floor, counted at each read"),
    Metric("PagesRenewed", "Count", "pages kept beyond their first expiry"),
    Metric("FloorRaised", "Count", "pages trimmed by retention"),
)
