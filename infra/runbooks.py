"""Which section of docs/operations/RUNBOOKS.md an alarm leads to."""

from __future__ import annotations

PAGE = "docs/operations/RUNBOOKS.md"
# By how an alarm's name ends; the first that fits counts.
SECTIONS = {
    "Invocations": "a-schedule-does-not-run",
    "TargetErrorCount": "a-schedule-does-not-run",
    "RecursiveInvocationsDropped": "calls-were-dropped",
    "AsyncEventsDropped": "calls-were-dropped",
    "FollowerLag": "a-follower-lags",
    "FollowerFellOff": "a-follower-fell-off",
    "PagesLost": "pages-are-lost",
    "ConsumersLate": "a-poison-operation",
    "ConsumersFellOff": "a-consumer-fell-off",
    "WritesRefused": "a-poison-operation",
    "ArchiveLag": "the-archive-lags",
    "PartsBroken": "the-archive-lags",
    "RelaysStanding": "a-chained-feed-stands-still",
    "RelayFellOff": "a-chained-feed-stands-still",
    "RelayUpstreamAge": "a-chained-feed-stands-still",
    "RelayLag": "a-chained-feed-stands-still",
    "SyncExecutionsFailed": "a-sync-failed-or-was-stopped",
    "SyncExecutionsTimedOut": "a-sync-failed-or-was-stopped",
    "ExecutionsFailed": "the-lake-or-a-pipeline-failed",
    "ExecutionsTimedOut": "the-lake-or-a-pipeline-failed",
    "DroppedEventCount": "stream-records-were-given-up",
    "OnFailureDestinationDeliveredEventCount": "stream-records-were-given-up",
    "IteratorAge": "a-follower-lags",
    "ThrottleEvents": "throttles",
    "Throttles": "throttles",
    "Http5xx": "a-function-fails",
    "SendsRefused": "a-function-fails",
    "Errors": "a-function-fails",
}


def description(alarm: str) -> str:
    """
    What the alarm called *alarm* says to who is woken by it.

    Raises:
        StopIteration: it has no section; write one.
    """
    section = next(each for end, each in SECTIONS.items() if alarm.endswith(end))
    return f"What to do: {PAGE}#{section}"
