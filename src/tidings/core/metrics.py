"""
The catalogue of metrics, with the meaning of each.

A stage writes them to CloudWatch; a server exports them at `/metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str  # a CloudWatch unit
    meaning: str
    measured: bool = False  # a value observed by each sweep; its sum is meaningless


METRICS = (
    Metric("Attention", "Count", "figures that call for a person now", measured=True),
    Metric(
        "Behind", "Count", "figures that call for a person if they stay as they are", measured=True
    ),
    Metric("OperationsIngested", "Count", "operations acknowledged to producers"),
    Metric("RequestsRejected", "Count", "requests answered with a 4xx status"),
    Metric("CorrectionsApplied", "Count", "corrections of a plan that are in the log"),
    Metric("CorrectionsMoved", "Count", "corrections left out: their objects changed meanwhile"),
    Metric(
        "FollowerLag",
        "Count",
        "pages between the head of the log and a follower's checkpoint",
        measured=True,
    ),
    Metric(
        "FollowerAge",
        "Seconds",
        "age of the oldest page that a follower has not handled",
        measured=True,
    ),
    Metric(
        "WakeupsMissed", "Count", "followers that the sweep found at rest beside a page that waits"
    ),
    Metric("FollowerPages", "Count", "pages a follower handled"),
    Metric("HolesFilled", "Count", "page numbers whose writer never came back"),
    Metric("FollowerFellOff", "Count", "a follower's next page is no longer in the log"),
    Metric("FramesSent", "Count", "WebSocket messages delivered"),
    Metric(
        "SendsUnknown", "Count", "WebSocket messages that may have arrived: their client was cut"
    ),
    Metric("SendsRefused", "Count", "WebSocket messages refused for good: their client was cut"),
    Metric(
        "OutboxAge", "Seconds", "age of the oldest message that waits in the outbox", measured=True
    ),
    Metric("LettersForwarded", "Count", "messages of the outbox that are in the log"),
    Metric("LettersRefused", "Count", "messages of the outbox put aside: their feed refuses them"),
    Metric("WritesCaptured", "Count", "writes in tables that produce that are in the log"),
    Metric("WritesRefused", "Count", "writes put aside: no operation can be made of them"),
    Metric("ListenersRegistered", "Count", "registrations of listeners that were accepted"),
    Metric("RegistrationsRefused", "Count", "registrations of listeners that were refused"),
    Metric("ConnectionsClosed", "Count", "connections cut: too slow, too far behind, or too old"),
    Metric("ConnectionsGone", "Count", "connections that were gone and are removed"),
    Metric(
        "ConsumerLag",
        "Count",
        "pages between the head of the log and its slowest consumer",
        measured=True,
    ),
    Metric(
        "ConsumersLate",
        "Count",
        "named consumers for whom the log outlives its retention",
        measured=True,
    ),
    Metric(
        "ConsumersFellOff",
        "Count",
        "named consumers whose next page is no longer in the log",
        measured=True,
    ),
    Metric(
        "ArchiveLag",
        "Seconds",
        "age of the oldest page that the archive has not got",
        measured=True,
    ),
    Metric("PartsArchived", "Count", "parts that were added to the archive"),
    Metric("PartsBroken", "Count", "parts of the archive that could not be read"),
    Metric("RelayPages", "Count", "pages that chained feeds copied"),
    Metric("RelayRetries", "Count", "times that an upstream did not answer and is asked again"),
    Metric(
        "RelayLag",
        "Count",
        "pages between the head of an upstream and its chained feed",
        measured=True,
    ),
    Metric(
        "RelaysStanding",
        "Count",
        "chained feeds that are stopped until an operator acts",
        measured=True,
    ),
    Metric("RelayFellOff", "Count", "times that an upstream's log did not reach back any more"),
    Metric(
        "RelayBucketsMended", "Count", "parts of a copied state that differed from the upstream's"
    ),
    Metric("RelayRoleChanges", "Count", "chained feeds that began or ceased to lead"),
    Metric("CoordinatorLost", "Count", "times that the coordination of a cluster did not answer"),
    Metric(
        "RelayUpstreamAge",
        "Seconds",
        "time since a chained feed last read its upstream",
        measured=True,
    ),
    Metric(
        "RelayMasterAge",
        "Seconds",
        "time since anybody on its way last read the master",
        measured=True,
    ),
    Metric("SweepStepsFailed", "Count", "feeds, their steps and connections a sweep failed on"),
    Metric("PagesLost", "Count", "pages that vanished above the floor, each time they are missed"),
    Metric("PagesRenewed", "Count", "pages that have to outlive the time they were written with"),
    Metric("FloorRaised", "Count", "pages given up by retention"),
)
