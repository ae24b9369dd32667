"""What differs from stage to stage, and nothing else. No value is looked up anywhere."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tidings.core import limits
from tidings.lake.columns import parse as parse_columns
from tidings.lake.errors import BadColumns

LAKE_MINUTES_MAX = 12 * 60  # a job that is started by the clock ends before it is forgotten
SUBNETS_MIN = 2  # of an EMR Serverless application: a job goes on where a zone is out


class InvalidSetting(ValueError):
    """A setting of a stage that no deployment could have."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}: must be {rule}, is {value!r}")


@dataclass(frozen=True, slots=True)
class SyncSchedule:
    """
    A sync by the clock: *expression* as EventBridge Scheduler reads it (`cron(0 3 * * ? *)`, UTC),
    *request* as `tidings.core.sync.workflow` does.
    """

    expression: str
    request: dict[str, object]


@dataclass(frozen=True, slots=True)
class Lake:
    """
    A stage's feeds as Iceberg tables: *every* is when a job brings them to the end of the feed, as
    EventBridge Scheduler reads it (`rate(15 minutes)`); it goes on for *minutes*, so that with
    `rate(1 hour)` and 55 they are always a minute or two behind. *columns* are those of types that
    have a table (LAKE.md). *compacts* is when the archive is compacted; None: never.
    """

    every: str
    minutes: int = 0
    columns: dict[str, object] = field(default_factory=dict)
    compacts: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.minutes <= LAKE_MINUTES_MAX:
            rule = f"from 0 to {LAKE_MINUTES_MAX}"
            raise InvalidSetting("lake.minutes", self.minutes, rule)
        try:
            parse_columns(json.dumps(self.columns))
        except BadColumns as error:
            raise InvalidSetting("lake.columns", self.columns, str(error)) from None


@dataclass(frozen=True, slots=True)
class Domain:
    """
    A name for the HTTP API; *certificate_arn* is its certificate in ACM, in the stage's Region.

    *truststore*, `s3://bucket/key` of certificates in PEM, demands a certificate of each client.
    *prefix* is the path below which the feed is served, without slashes around it. The name is
    pointed to the API by whoever holds its zone.
    """

    name: str
    certificate_arn: str
    truststore: str = ""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class OneAddress:
    """
    One name for all three addresses of a stage: CloudFront in front of them (DEPLOY.md).

    *name* is its name, with *certificate_arn* in ACM, in us-east-1; without one it is CloudFront's
    own. *web_acl_arn* is a web ACL of AWS WAF for CloudFront, in us-east-1 too.
    """

    name: str = ""
    certificate_arn: str = ""
    web_acl_arn: str = ""


@dataclass(frozen=True, slots=True)
class Producer:
    """
    A table of somebody else's, whose writes are told by a feed (docs/guides/CAPTURES.md).

    *stream_arn* is of its stream, *capture* what its writes mean, as
    `tidings.core.ingest.table_capture` reads it, *key_arn* the KMS key of the table where its owner
    manages one. *name* tells producers of a stage apart.
    """

    name: str
    stream_arn: str
    capture: dict[str, object]
    key_arn: str = ""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """
    A pipeline that the stage keeps running (PIPELINES.md): the file at *path*, from here, or
    a `.tgz` that `infra.build_pipeline` made of it before.

    *secrets* are ARNs in Secrets Manager that it may read. It runs in *subnets*, in zones that
    differ and with a way to the internet (a NAT gateway), in *security_groups*: without them a job
    of EMR Serverless reaches S3 and AWS's own services in its Region, but neither the feed nor
    stores.

    Raises:
        InvalidSetting: fewer than `SUBNETS_MIN` subnets, or no security group.
    """

    name: str
    path: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        what = f"pipelines[{self.name}]"
        if len(self.subnets) < SUBNETS_MIN:
            raise InvalidSetting(f"{what}.subnets", self.subnets, f"at least {SUBNETS_MIN} subnets")
        if not self.security_groups:
            raise InvalidSetting(f"{what}.security_groups", (), "at least one security group")


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One deployment of the feed.

    *keep_data* protects tables and logs from deletion. *customer_key* encrypts with a KMS key of
    this stage ($1 a month and a charge per request) instead of a key AWS manages. *requests_per_s*
    and *burst* bound each API. *streams_max* is how many SSE readers may hold a function at once,
    set aside for them from the account's concurrency (None: whatever the account has; a new account
    has 10 and can set nothing aside: `tidings doctor`). A follower more than *lag_pages_max* behind
    its feed for a while raises an alarm. *small_followers* have half the memory, and with it
    half the share of a core: a third cheaper where they mostly wait for DynamoDB, slower where much
    comes at once. *all_alarms*: there are also those of what is refused and repeated, at $0.10 a
    month each; what is refused to the end has the others. *all_metrics* are written, not only what
    alarms need: $0.30 a month for each that is in use. *dashboard* is one of all that is measured:
    $3 a month. *syncs* run by the clock. *producers* are tables it follows. *domain* is a
    name of its own for the HTTP API. *archive* keeps every page beyond the log's retention; after
    *archive_cold_days* in a colder class of S3. *lake*: its feeds are tables, too.
    *pipelines* run for as long as they are named here.
    *sources* are its chained feeds, as TIDINGS_SOURCES has them (CHAINING.md). Where leaders
    are elected, one stage has the table (*seats*), the others name its ARN (*coordinator*);
    *seat_accounts* are those that may, beside its own.
    *alarm_mail* are addresses that the alarms are mailed to, once each has confirmed it. *tables*
    is what follows the names of tables that were restored (RUNBOOKS.md), empty for those that
    the stack made.
    *environment* overrides defaults of `tidings.aws.config.settings.SETTINGS`.
    *xray*: X-Ray samples what functions are called for, one call a second and a twentieth of the
    others; an idle stage stays within what is free of charge. *one_address* is in front of all that
    clients reach.
    *canary* tries new code on a tenth of the calls for five minutes, and goes back where a call
    fails (`infra.parts.delivery`); without it everything is replaced at once. *snap_start* are
    functions that start from a snapshot of their memory (ADR 54), each for $4 a GB of its memory a
    month; none that streams.
    *reads_per_s_max* and *writes_per_s_max* bound the units that each table takes in a second:
    above them DynamoDB throttles instead of billing (None: what the account allows, 40,000).
    *budget_dollars* a month are a budget over what carries the stage's tag; *alarm_mail* hears when
    80 % or all of it is spent, or will be.
    *calls_logged*: Lambda writes a line of each call, with how long it took to start, not only of
    those that failed; some 500 bytes a call. *expires* is a moment, as 2026-11-25T12:00:00Z, from
    which on nobody needs the stage: a tag says so, and nothing acts on it by itself.
    """

    name: str
    keep_data: bool
    customer_key: bool
    log_days: int
    requests_per_s: int
    burst: int
    streams_max: int | None = None
    lag_pages_max: int = limits.LAG_PAGES_MAX
    small_followers: bool = False
    all_alarms: bool = True
    all_metrics: bool = False
    dashboard: bool = False
    syncs: tuple[SyncSchedule, ...] = ()
    producers: tuple[Producer, ...] = ()
    domain: Domain | None = None
    archive: bool = True
    lake: Lake | None = None
    archive_cold_days: int | None = None
    pipelines: tuple[PipelineRun, ...] = ()
    sources: dict[str, dict[str, object]] = field(default_factory=dict)
    seats: bool = False
    coordinator: str = ""
    seat_accounts: tuple[str, ...] = ()
    alarm_mail: tuple[str, ...] = ()
    tables: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    xray: bool = False
    one_address: OneAddress | None = None
    canary: bool = False
    snap_start: frozenset[str] = frozenset()
    reads_per_s_max: int | None = None
    writes_per_s_max: int | None = None
    budget_dollars: int | None = None
    calls_logged: bool = False
    expires: str = ""


class UnknownStage(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"no stage {name!r}; there are {', '.join(s.name for s in STAGES)}")


# API Gateway gives an account 10,000 requests/s and a burst of 5,000 for all its APIs together,
# callbacks to WebSockets included; a stage leaves room for the others and for its own push.
STAGES = (
    Stage(
        "dev",
        keep_data=False,
        customer_key=False,
        log_days=7,
        requests_per_s=100,
        burst=200,
        all_alarms=False,  # at 100 requests a second little is refused, and nobody is in a hurry
        small_followers=True,
        environment={"TIDINGS_RETENTION_HOURS": "24"},
    ),
    Stage(
        "staging",
        keep_data=False,
        customer_key=True,
        log_days=14,
        requests_per_s=500,
        burst=500,
        all_metrics=True,  # cost nothing when nothing happens
        # Tried here before anybody turns it on in prod, once a day: a run costs some cents.
        lake=Lake("cron(0 3 * * ? *)", compacts="cron(0 4 ? * SUN *)"),
    ),
    Stage(
        "prod",
        keep_data=True,
        customer_key=True,
        log_days=90,
        requests_per_s=2000,
        burst=1000,
        all_metrics=True,
        dashboard=True,  # for who is woken at night
        archive_cold_days=90,
        canary=True,
    ),
)

SANDBOX = "sandbox-"  # what names of stages begin with that `make sandbox` makes and takes away
SANDBOX_FEEDS = ("main", "synced")  # the second one is for dumps, which delete what they lack
# What a table may take a second in a sandbox: a loop that nobody meant costs $13 an hour at most.
SANDBOX_WRITES, SANDBOX_READS = 4000, 8000
SANDBOX_DOLLARS = 20  # of its budget, several times what a run costs
SANDBOX_STREAM_S = 150  # 180 MB of a stream take Lambda some 90 seconds


def sandbox(name: str, expires: str, release: int = 1) -> Stage:
    """
    A stage to be looked at for an hour and taken away (docs/operations/SANDBOX.md).

    What prod has in its ways (key, canaries, all alarms and metrics), nothing that outlives it.
    Open to who finds its addresses, because the conformance suite carries no password. Another
    *release* is another version of each function.
    """
    return Stage(
        name,
        keep_data=False,
        customer_key=True,
        log_days=7,
        requests_per_s=500,
        burst=500,
        all_metrics=True,
        canary=True,
        reads_per_s_max=SANDBOX_READS,
        writes_per_s_max=SANDBOX_WRITES,
        budget_dollars=SANDBOX_DOLLARS,
        calls_logged=True,
        expires=expires,
        environment={
            "TIDINGS_OPEN": "true",
            "TIDINGS_FEEDS": ",".join(SANDBOX_FEEDS),
            "TIDINGS_RETENTION_HOURS": "24",
            "TIDINGS_STREAM_SECONDS": str(SANDBOX_STREAM_S),
            "TIDINGS_LATE_SECONDS": str(10 * release),  # the default, then another value
        },
    )


def chosen(name: str | None, expires: str = "", release: int = 1) -> tuple[Stage, ...]:
    """
    The stage called *name*; every stage of `STAGES` without one. *expires* and *release* are of a
    sandbox.

    Raises:
        UnknownStage: there is no such stage.
    """
    if name is not None and name.startswith(SANDBOX):
        return (sandbox(name, expires, release),)
    stages = tuple(stage for stage in STAGES if name in (None, stage.name))
    if not stages:
        raise UnknownStage(str(name))
    return stages
