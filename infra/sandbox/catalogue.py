"""Every step there is, in the order in which they are run; `destroy` comes behind all of them."""

from __future__ import annotations

from infra import prices, settings
from infra.sandbox import deploying, drills, leaving, measuring, reading, spark
from infra.sandbox.ground import Ground
from infra.sandbox.steps import Step

# At most, of list prices; a step that is not here costs less than a cent.
_EMR_VCPU_HOUR, _EMR_GB_HOUR = 0.053, 0.006  # https://aws.amazon.com/emr/pricing/, x86: arm is less
_QUARTER_OF_AN_EMR = (16 * _EMR_VCPU_HOUR + 112 * _EMR_GB_HOUR) / 4  # of all that a job may have
_A_CENT = 0.01
_MANY_UNITS = 700_000 * prices.WRITE_UNIT.dollars / prices.WRITE_UNIT.per  # 600,000 rows at most
# Some 300 streams of the suite, each held until its time is over, by a function of half a GB.
_GB_S = 300 * settings.SANDBOX_STREAM_S / 2
_ABANDONED = _GB_S * prices.GB_SECOND.dollars / prices.GB_SECOND.per
_LARGE = 3 * 0.21 * prices.OUT_GB.dollars + _A_CENT  # of what the streams send to us

_LOGS_LACK = "it is told by Lambda's own line of the call, which the emulator does not write"
_NO_EMR = "the emulator knows no EMR Serverless"
_NO_METRICS = "the emulator has no metrics of tables and functions"


DEPLOY = "deploy"

PLAN: tuple[tuple[tuple[Step[Ground], ...], ...], ...] = (
    (
        (
            Step("bootstrap", "the CDK can deploy here", deploying.bootstrap),
            Step("doctor", "a deploy would go through", deploying.doctor, needs=("bootstrap",)),
            Step(
                DEPLOY,
                "the stage is deployed as it is written",
                deploying.deploy,
                needs=("doctor",),
                dollars=0.10,  # a key and 16 alarms by the hour, requests of CloudFormation none
            ),
        ),
    ),
    (
        (
            Step(
                "smoke",
                "an operation that is posted is heard over WebSocket and by an event stream",
                deploying.smoked,
                needs=(DEPLOY,),
            ),
            Step(
                "conformance",
                "the stage keeps PROTOCOL.md",
                reading.conform,
                needs=("smoke",),
                dollars=_ABANDONED + 5 * _A_CENT,
            ),
            Step(
                "cors",
                "a browser may read the headers that pages need",
                reading.cors,
                needs=(DEPLOY,),
            ),
            Step(
                "key-revoked",
                "a key that is revoked opens nothing within seconds",
                drills.key_revoked,
                needs=("smoke",),
            ),
            Step(
                "rebuilt",
                "a row of the state that was deleted is found and put back",
                drills.rebuilt,
                needs=("smoke",),
            ),
            Step(
                "stream-off",
                "the sweep wakes a follower that the log's stream does not",
                drills.stream_off,
                needs=("smoke",),
                aws_alone="the emulator goes on reading a stream whose mapping is off",
            ),
            Step(
                "abandoned-stream",
                "a reader who leaves holds a function no longer than a stream lasts",
                reading.abandoned,
                needs=("smoke",),
                aws_alone=_LOGS_LACK,
            ),
            Step(
                "large-stream",
                "an answer above 180 MB ends between two events and is resumed",
                reading.large,
                needs=("smoke",),
                aws_alone="the emulator cuts no answer, and its tables take minutes for 200 MB",
                dollars=_LARGE,
            ),
        ),
        (
            Step(
                "sync",
                "a dump is compared and applied by the stage's own job",
                spark.sync,
                needs=(DEPLOY,),
                aws_alone=_NO_EMR,
                dollars=_QUARTER_OF_AN_EMR,
            ),
            Step(
                "export",
                "the machine may export the state, and the job reads the export",
                spark.export,
                needs=("sync",),
                aws_alone=_NO_EMR,
                dollars=_QUARTER_OF_AN_EMR + _A_CENT,
            ),
            Step(
                "spark-without-subnets",
                "a job without subnets does not reach the feed",
                spark.without_subnets,
                needs=(DEPLOY,),
                aws_alone=_NO_EMR,
                dollars=_QUARTER_OF_AN_EMR / 4,
            ),
            Step(
                "spark-with-subnets",
                "a job in subnets with a way to the internet reaches the feed",
                spark.with_subnets,
                needs=(DEPLOY,),
                aws_alone=_NO_EMR,
                dollars=_QUARTER_OF_AN_EMR / 4,
                asks="--subnet ID --subnet ID --security-group ID",
            ),
        ),
    ),
    (
        (
            Step(
                "load",
                "under load each consumer hears each operation once, in the one order",
                measuring.load,
                needs=("smoke",),
                dollars=0.20,
            ),
            Step(
                "backlog",
                "followers that call themselves for minutes are not ended as a loop",
                drills.backlog,
                needs=("smoke",),
                aws_alone="the emulator guards nobody, so that a backlog shows nothing there",
                dollars=_MANY_UNITS,
            ),
            Step(
                "units",
                "a load takes the units and calls that COSTS.md is computed of",
                measuring.units,
                needs=("load",),
                aws_alone=_NO_METRICS,
            ),
            Step(
                "canary",
                "another version takes over by canaries, and nobody misses anything",
                deploying.canary,
                needs=("smoke",),
                aws_alone="the emulator knows no CodeDeploy",
                dollars=0.05,
            ),
            Step(
                "cold-starts",
                "how long each function takes to start",
                measuring.cold_starts,
                needs=(DEPLOY,),
                aws_alone=_LOGS_LACK,
            ),
            Step(
                "alarms",
                "no alarm of failures was on meanwhile",
                measuring.alarms,
                needs=(DEPLOY,),
                aws_alone=_NO_METRICS,
            ),
        ),
    ),
)

DESTROY = Step("destroy", "nothing of the stage is left", leaving.destroy)
