"""The section of docs/operations/RUNBOOKS.md for each alarm."""

from __future__ import annotations

PAGE = "docs/operations/RUNBOOKS.md"
# By the end of an alarm's name; the first match is used.
SECTIONS = {
    "Failures": "a-function-fails",
    "Throttles": "throttles",
    "ThrottleEvents": "throttles",
    "Attention": "somebody-has-to-look",
    "Behind": "somebody-has-to-look",
    "RecursiveInvocationsDropped": "calls-were-dropped",
    "Invocations": "a-schedule-does-not-run",
    "DroppedEventCount": "stream-records-were-given-up",
    "OnFailureDestinationDeliveredEventCount": "stream-records-were-given-up",
    "IteratorAge": "a-follower-lags",
}
# By the metric in an alert line of the section *Somebody has to look*.
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
    "RelaysStanding": "a-chained-feed-stands-still",
    "RelayFellOff": "a-chained-feed-stands-still",
    "RelayBucketsMended": "a-chained-feed-stands-still",
    "RelayUpstreamAge": "a-chained-feed-stands-still",
    "RelayLag": "a-chained-feed-stands-still",
}


def description(alarm: str) -> str:
    """
    Return the description of *alarm*, which names its runbook section.

    Raises:
        StopIteration: the alarm has no section; write one.
    """
    section = next(each for end, each in SECTIONS.items() if alarm.endswith(end))
    return f"What to do: {PAGE}#{section}"
