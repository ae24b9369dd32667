"""Which section of docs/operations/RUNBOOKS.md an alarm leads to."""

from __future__ import annotations

PAGE = "docs/operations/RUNBOOKS.md"
# By how an alarm's name ends; the first that fits counts.
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
# By the metric that a line of *Somebody has to look* names.
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
    What the alarm called *alarm* says to who is woken by it.

    Raises:
        StopIteration: it has no section; write one.
    """
    section = next(each for end, each in SECTIONS.items() if alarm.endswith(end))
    return f"What to do: {PAGE}#{section}"
