"""The section of docs/operations/RUNBOOKS.md for each alarm."""

from __future__ import annotations

PAGE = "docs/operations/RUNBOOKS.md"
# By the end of an alarm's name; the first match is used.
SECTIONS = {
    "Failures": "a-function-fails",
    "Url5xxCount": "a-function-fails",
    "Throttles": "throttles",
    "ThrottleEvents": "throttles",
    "Attention": "attention-or-behind",
    "Behind": "attention-or-behind",
    "RecursiveInvocationsDropped": "calls-were-dropped",
    "Invocations": "a-schedule-does-not-run",
    "DroppedEventCount": "stream-records-were-given-up",
    "OnFailureDestinationDeliveredEventCount": "stream-records-were-given-up",
    "IteratorAge": "a-follower-lags",
}
# By the metric in an alert line of the section *Attention or Behind*.
METRICS = {
    "FollowerLag": "a-follower-lags",
    "FollowerAge": "a-follower-lags",
    "WakeupsMissed": "calls-were-dropped",
    "FollowerFellOff": "a-follower-fell-off",
    "PagesLost": "pages-are-lost",
    "ConsumersLate": "a-poison-operation",
    "ConsumersFellOff": "a-consumer-fell-off",
    "ArchiveLag": "the-archive-lags",
    "PartsBroken": "the-archive-lags",
    "OutboxAge": "a-function-fails",
    "WritesRefused": "a-poison-operation",
    "SendsRefused": "a-function-fails",
    "RelaysStanding": "a-chained-feed-has-stopped",
    "RelayFellOff": "a-chained-feed-has-stopped",
    "RelayBucketsMended": "a-chained-feed-has-stopped",
    "RelayUpstreamAge": "a-chained-feed-has-stopped",
    "RelayLag": "a-chained-feed-has-stopped",
}


def description(alarm: str) -> str:
    """
    Return the description of *alarm*, which names its runbook section.

    Raises:
        StopIteration: the alarm has no section; write one.
    """
    section = next(each for end, each in SECTIONS.items() if alarm.endswith(end))
    return f"What to do: {PAGE}#{section}"
