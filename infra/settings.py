"""The settings that differ between stages, as literals in this file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from tidings.aws.config.stages import LOG_DAYS, name_problem, stack_name
from tidings.core import limits
from tidings.lake.columns import parse as parse_columns
from tidings.lake.warehouse import BadColumns

LAKE_MINUTES_MAX = 12 * 60  # a longer job could end after EMR Serverless has deleted its status
# A vault's new lock can still be removed within this time, which is AWS Backup's minimum.
LOCK_GRACE_DAYS = 3
NAME_MAX = 64  # characters in the name of a Lambda function or an EMR Serverless application
SUBNETS_MIN = 2  # a pipeline's job survives the failure of a zone if it has subnets in two zones


class InvalidSetting(ValueError):
    """A setting of a stage is invalid in any deployment."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}: must be {rule}, is {value!r}")


@dataclass(frozen=True, slots=True)
class SyncSchedule:
    """A scheduled sync.

    *expression* is in the format of EventBridge Scheduler (`cron(0 3 * * ? *)`, UTC), *request* in
    the format of `tidings.core.sync.workflow`.
    """

    expression: str
    request: dict[str, object]


@dataclass(frozen=True, slots=True)
class Lake:
    """A stage's feeds as Iceberg tables.

    *every* is the schedule of the job that updates the tables, in the format of EventBridge
    Scheduler (`rate(15 minutes)`). The job continues for *minutes*: with `rate(1 hour)` and 55
    minutes, the tables are usually one or two minutes late. *columns* declares the types that have
    a table of their own, and the columns of these tables (LAKE.md). *compacts* is the schedule of
    the archive's compaction; with None, the archive is never compacted.
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
            raise InvalidSetting("lake.columns", self.columns, f"valid columns ({error})") from None


@dataclass(frozen=True, slots=True)
class Domain:
    """A name for the HTTP API; *certificate_arn* is its certificate in ACM, in the stage's Region.

    *truststore* is `s3://bucket/key` of a PEM file with certificates of authorities. If it is set,
    each client needs a certificate. *prefix* is the path of the feed, without leading and trailing
    slashes. The owner of the DNS zone points the name to the API.
    """

    name: str
    certificate_arn: str
    truststore: str = ""
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class OneAddress:
    """A single address of a stage: CloudFront in front of the stage's three addresses (DEPLOY.md).

    *name* is a custom name, and *certificate_arn* its certificate in ACM, in us-east-1. Without a
    custom name, CloudFront generates a name. *web_acl_arn* is a web ACL of AWS WAF for CloudFront,
    also in us-east-1.
    """

    name: str = ""
    certificate_arn: str = ""
    web_acl_arn: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of tables by AWS Backup in another account (see docs/operations/DISASTER_RECOVERY.md).

    *vault_arn* is the vault in the other account, which has to accept the copies. *every* is the
    schedule of the backups, in UTC, at most once an hour. Each backup is kept for *days*, in both
    accounts. If *lock_days* is set, a backup in this account is locked for that many days: no
    credentials, not even those of the account's owner, allow deleting it. The lock itself can only
    be removed in its first `LOCK_GRACE_DAYS`. If *lock_days* is None, backups are not locked.
    """

    vault_arn: str
    every: str = "cron(0 3 * * ? *)"
    days: int = 35
    lock_days: int | None = None

    def __post_init__(self) -> None:
        if self.lock_days is not None and not 1 <= self.lock_days <= self.days:
            rule = f"from 1 to {self.days}, the value of days"
            raise InvalidSetting("copies.lock_days", self.lock_days, rule)


@dataclass(frozen=True, slots=True)
class Producer:
    """A table of another application; a feed publishes the table's writes.

    See docs/guides/CAPTURES.md.

    *stream_arn* is the ARN of the table's stream. *capture* maps writes to operations, in the
    format of `tidings.core.ingest.table_capture`. *key_arn* is the KMS key of the table, or "" if
    AWS manages the key. *name* is unique among the producers of a stage.
    """

    name: str
    stream_arn: str
    capture: dict[str, object]
    key_arn: str = ""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A pipeline that the stage keeps running (PIPELINES.md).

    *path* is the pipeline's file, relative to the repository, or a `.tgz` that `infra.builds`
    built from that file. *secrets* are the ARNs of the secrets in Secrets Manager that the pipeline
    may read. The pipeline runs in *subnets*, in different zones and with a route to the internet (a
    NAT gateway), and in *security_groups*. Without subnets and security groups, a job of EMR
    Serverless reaches S3 and AWS's own services in its Region, but neither the feed nor stores.

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
    """One deployment of the feed.

    Data and keys: *keep_data* protects tables and logs from deletion. *customer_key* encrypts with
    a KMS key of this stage ($1 a month and a charge per request) instead of a key managed by AWS.
    *tables* is the name suffix of restored tables (RUNBOOKS.md), empty for tables created by the
    stack. *tables_before* is the suffix that a restore replaces. Until *tables_before* is None
    again, functions may use the tables of both suffixes, and new code is deployed without a canary.
    A canary would fail in a damaged stage and roll the restore back. *copies* are backups in
    another account. With *archive*, every page is kept beyond the log's retention, and moved to a
    colder storage class of S3 after *archive_cold_days*. With *lake*, the feeds are also stored as
    Iceberg tables.

    Limits: *requests_per_s* and *burst* limit each API. *streams_max* is the maximum number of
    concurrent SSE readers. It is reserved from the account's concurrency, so that readers cannot
    use up the concurrency of `ingest`. None reserves nothing; a new account has a concurrency of 10
    and cannot reserve any (`tidings doctor` checks this). *reads_per_s_max* and *writes_per_s_max*
    limit the units per second of each table; DynamoDB throttles requests above these limits, and so
    limits the bill. None means the limit of the account, 40,000. With *small_followers*, followers
    have half the memory, and so half the CPU share. They are then a third cheaper if they mostly
    wait for DynamoDB, but slower under bursts.

    Monitoring: a follower that lags by more than *lag_pages_max* pages for some time raises an
    alarm. *all_alarms* adds the alarms for refused requests that are retried, at $0.10 a month for
    each alarm; requests that are refused for good always raise an alarm. *all_metrics* writes all
    metrics, not only those of alarms, at $0.30 a month for each metric in use. *route_metrics* lets
    API Gateway also measure each route, at the same price for each metric of a route in use.
    *dashboard* creates a dashboard of all metrics, at $3 a month. *alarm_mail* are addresses that
    receive the alarms, after each has confirmed the subscription. *budget_dollars* is a monthly
    budget of the resources with the stage's tag; *alarm_mail* is notified when 80 % or all of it is
    spent, or when all of it is forecast to be spent. *xray* lets X-Ray sample one call a second and
    5 % of the other calls; an idle stage stays within the free tier. *calls_logged* lets Lambda log
    each call with its start time, and not only failed calls. This takes some 500 bytes per call.

    Jobs: *syncs* are scheduled syncs. *producers* are captured tables. *pipelines* run as long as
    they are listed here.

    Addresses: *domain* is a custom name of the HTTP API. *one_address* is a CloudFront distribution
    in front of all three addresses.

    Chaining: *sources* are the stage's chained feeds, in the format of TIDINGS_SOURCES
    (CHAINING.md). One stage has the table of the leader election (*seats*), and the other stages
    refer to the ARN of this table (*coordinator*). *seat_accounts* are other accounts with access
    to the table.

    Releases: *canary* tries new code on a tenth of the calls for five minutes, and rolls back if a
    call fails (`infra.parts.function`); otherwise everything is replaced at once. *snap_start* are
    functions that start from a snapshot of their memory (ADR 54), for $4 a month per GB of memory.
    Streaming functions cannot use snapshots. With *hotswap*, our code is in the functions and not
    in layers, so that `cdk watch` updates it without CloudFormation. *expires* is the time after
    which the stage is not needed, such as 2026-11-25T12:00:00Z. It is only set as a tag.

    *environment* overrides defaults of `tidings.aws.config.settings.SETTINGS`.
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
    route_metrics: bool = False
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
    tables_before: str | None = None
    copies: Copies | None = None
    environment: dict[str, str] = field(default_factory=dict)
    xray: bool = False
    one_address: OneAddress | None = None
    canary: bool = False
    snap_start: frozenset[str] = frozenset()
    reads_per_s_max: int | None = None
    writes_per_s_max: int | None = None
    budget_dollars: int | None = None
    calls_logged: bool = False
    hotswap: bool = False
    expires: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that no deployment could use.

        Raises:
            InvalidSetting: the name is not usable, CloudWatch does not accept *log_days*, or
                *tables_before* equals *tables*.
        """
        if problem := name_problem(self.name):
            raise InvalidSetting("name", self.name, problem)
        if self.log_days not in LOG_DAYS:
            accepted = ", ".join(map(str, LOG_DAYS))
            raise InvalidSetting("log_days", self.log_days, f"one of {accepted}")
        if self.tables_before == self.tables:
            rule = "different from the value of tables"
            raise InvalidSetting("tables_before", self.tables_before, rule)
        for name in (*(f"capture-{p.name}" for p in self.producers), *self._pipelines()):
            if len(called := f"{stack_name(self.name)}-{name}") > NAME_MAX:
                raise InvalidSetting("name", called, f"at most {NAME_MAX} characters")

    def _pipelines(self) -> tuple[str, ...]:
        return tuple(f"pipeline-{run.name}" for run in self.pipelines)


# API Gateway limits an account to 10,000 requests/s and a burst of 5,000 for all its APIs,
# including callbacks to WebSockets; a stage leaves room for other APIs and for the messages that it
# pushes to WebSockets.
STAGES = (
    Stage(
        "dev",
        keep_data=False,
        customer_key=False,
        log_days=7,
        requests_per_s=100,
        burst=200,
        # AWS rarely throttles functions or tables at 100 requests a second, and dev is not urgent.
        all_alarms=False,
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
        streams_max=50,
        all_metrics=True,  # free of charge while nothing happens
        # The lake is tested here before it is enabled in prod. It runs once a day, for some cents.
        lake=Lake("cron(0 3 * * ? *)", compacts="cron(0 4 ? * SUN *)"),
    ),
    Stage(
        "prod",
        keep_data=True,
        customer_key=True,
        log_days=90,
        requests_per_s=2000,
        burst=1000,
        streams_max=400,  # leaves 600 of an account's usual concurrency of 1,000 to other functions
        all_metrics=True,
        archive_cold_days=90,
        canary=True,
    ),
)

SANDBOX = "sandbox-"  # prefix of the names of temporary stages of `make sandbox`
SANDBOX_FEEDS = ("main", "synced")  # separate, because a sync of `synced` deletes objects
# The limits of a sandbox's tables in units per second; an accidental loop costs at most $13 an
# hour.
SANDBOX_WRITES, SANDBOX_READS = 4000, 8000
SANDBOX_DOLLARS = 20  # the budget of a sandbox, several times the cost of a run
SANDBOX_STREAM_S = 150  # a stream ends after this time; the tests' 180 MB take some 90 seconds


def sandbox(name: str, expires: str, release: int = 1) -> Stage:
    """Return a temporary stage for an hour of tests (docs/operations/SANDBOX.md).

    The stage has prod's features (key, canaries, all alarms and metrics), but keeps no resource
    when it is deleted. It is open to every client that knows its addresses, because the conformance
    suite sends no password. A different *release* results in a different version of each function.
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
            "TIDINGS_LATE_SECONDS": str(10 * release),  # release 1 has the default
        },
    )


def choose_stages(name: str | None, expires: str = "", release: int = 1) -> tuple[Stage, ...]:
    """Return the stage called *name*, or all of `STAGES` for None.

    *expires* and *release* are only used for a sandbox.

    A name that is not in `STAGES` is a developer's own stage: a copy of `dev` with that name and
    with `hotswap`.

    Raises:
        InvalidSetting: a stage cannot be called *name*.
    """
    if name is not None and name.startswith(SANDBOX):
        return (sandbox(name, expires, release),)
    stages = tuple(stage for stage in STAGES if name in (None, stage.name))
    return stages or (replace(STAGES[0], name=str(name), hotswap=True),)
