"""Names, variables and runbook sections shared by the templates and other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.settings import Stage
from tidings.aws.config import deployment, settings

SOCKET_STAGE = "live"  # the only stage of the WebSocket API
STREAM_HANDLER = "run.sh"  # the web adapter runs the handler as a program


def prefix(stage: Stage) -> str:
    """Return the prefix of the names of the functions of *stage*."""
    return f"tidings-{stage.name}-"


def title(name: str) -> str:
    """Return *name* in CloudFormation's spelling: `follow-push` becomes `FollowPush`."""
    return "".join(part.title() for part in name.split("-"))


def variables(stage: Stage, tables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of functions: the defaults, overridden by the settings of *stage*.

    *tables* maps the names in `deployment.TABLES` to the names of the stage's tables.
    """
    return (
        {each.variable: each.default for each in settings.SETTINGS if each.default}
        | stage.environment
        | {table.setting: tables[table.name] for table in deployment.TABLES}
        | {
            "TIDINGS_STAGE": stage.name,
            "TIDINGS_LAG_PAGES": str(stage.lag_pages_max),
            "TIDINGS_METRICS": (
                settings.ALL_METRICS if stage.all_metrics else settings.ALARM_METRICS
            ),
            "TIDINGS_FUNCTION_PREFIX": prefix(stage),
            settings.SERVICE_VARIABLE: settings.metrics_service(stage.name),
            settings.TRACER_VARIABLE: json.dumps(not stage.xray),
        }
    )


def addresses(stage: Stage) -> str:
    """Return the upstream of each chained feed as JSON.

    The stack has an output with this text. The commands of operators read the output, because they
    must not write to a chained feed.
    """
    return json.dumps({feed: {"url": source["url"]} for feed, source in stage.sources.items()})


PAGE = "docs/operations/RUNBOOKS.md"
# The runbook section of an alarm, by the end of the alarm's name; the first match is used.
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
    "PipelineWaiting": "a-pipeline-waits",
    "PipelineRetainedBytes": "a-pipeline-waits",
}
# The runbook section of an alert. An alert is a line in the feed's status; the line names a metric,
# by which the section is found here.
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
    """Return the description of *alarm*, which names its runbook section.

    Raises:
        StopIteration: `SECTIONS` has no section for the alarm and has to be extended.
    """
    section = next(each for end, each in SECTIONS.items() if alarm.endswith(end))
    return f"What to do: {PAGE}#{section}"
