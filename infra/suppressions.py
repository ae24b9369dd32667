"""Accepted findings of cdk-nag's AwsSolutions rules, with reasons.

`make synth` fails on all other findings.
"""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
import cdk_nag


@dataclass(frozen=True, slots=True)
class Suppression:
    """An accepted rule.

    *finding* is a regular expression; if it is given, only findings that match it are accepted.
    """

    rule: str
    reason: str
    finding: str | None = None


ACCEPTED = (
    Suppression(
        "AwsSolutions-APIG4",
        "Producers and consumers use HTTP Basic and cannot sign requests. The functions check the "
        "feed's password (tidings/core/auth/guard.py); a feed without a password is closed. See "
        "docs/adr/0011-passwords.md.",
    ),
    Suppression(
        "AwsSolutions-IAM4",
        "API Gateway has one logging role for the whole account, with AWS's own policy; a "
        "narrower policy would break the logs of the account's other APIs.",
        r"Policy::.*/service-role/AmazonAPIGatewayPushToCloudWatchLogs$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "CodeDeploy reads the alarm that ends a canary. The alarm's generated name is not known "
        "here.",
        r"Resource::arn:.*:alarm:\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "A connection gets its id when a client connects; the grant is for one stage of one API "
        "and the two methods that are used.",
        r"Resource::.*/live/(POST|DELETE)/@connections/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "ListStreams is authorised against all streams of a table; the grant is for one table.",
        r"Resource::arn:.*:table/<Data(Log|Outbox)TableIs.*>/stream/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "Lambda names each object it writes by mapping, shard and time; the grant allows writing "
        "objects below one prefix of one bucket.",
        r"Resource::arn:.*:::<DataGivenupBucketIs.*>/aws/lambda/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "A sync names its objects when it creates them; each grant is for the objects below one "
        "prefix of one bucket.",
        r"Resource::arn:.*:::<DataSyncsBucketIs.*>/"
        r"(approvals|dumps|exports|logs|plans|uploads)/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "A part of the archive is named by the pages it holds; each grant allows reading or "
        "writing objects below one prefix of one bucket.",
        r"Resource::arn:.*:::<DataArchiveBucketIs.*>/archive/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "An erasure gets its id when it is requested; the grant is for the ledger of erasures, "
        "which is below one prefix of one bucket.",
        r"Resource::arn:.*:::<DataArchiveBucketIs.*>/erasures/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "Iceberg names the files of a table itself; the grants are for objects below one prefix of "
        "one bucket.",
        r"Resource::arn:.*:::<DataLakeBucketIs.*>/tables/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "The tables of a feed are named when it is first archived; the grant is for the tables of "
        "one database.",
        r"Resource::arn:.*:table/tidings_[a-z0-9_]+_lake/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "A job run gets its id when it is started; the grant is for the runs of one application.",
        r"Resource::<(SyncJob|Pipeline\w*)Application.*>/jobruns/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "An export gets its id when it is started; the grant is for the exports of one table.",
        r"Resource::arn:.*:table/<DataStateTableIs.*>/export/\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "An execution gets its name when it is started; the grant is for the executions of one "
        "state machine and of its map over parts.",
        r"Resource::arn:.*:execution:tidings-[a-z0-9-]+-sync(/Parts)?:\*$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "CloudWatch Logs has no resource type for the delivery of logs, which Step Functions needs "
        "to write its log. X-Ray has no resource type for segments, which functions of a stage "
        "with `xray` send.",
        r"Resource::\*$",
    ),
    Suppression(
        "AwsSolutions-DDB3",
        "The table of connections only contains open connections, so restoring it would be "
        "useless (tidings/aws/config/deployment.py). The other tables are recoverable.",
    ),
    Suppression(
        "AwsSolutions-L1",
        "The runtime is pinned, because the vendor layers hold wheels for Python 3.13. The tests "
        "have to pass on a newer runtime before it is used.",
    ),
    Suppression(
        "AwsSolutions-SF2",
        "Traces are not needed: the history of an execution shows each step, its time and error.",
    ),
    Suppression(
        "AwsSolutions-S1",
        "One bucket contains stream records that Lambda discarded, another dumps and plans. "
        "Objects in both are deleted after 30 days, and an access log would be larger than its "
        "bucket. Replays read many objects of the archive's bucket; the replays are logged.",
    ),
)

# Findings of optional parts that no stage in `infra.settings` uses: `copies`, a restore
# (`tables_before`), and `one_address`.
OPTIONAL = (
    Suppression(
        "AwsSolutions-IAM4",
        "AWS Backup needs AWS's own policy, which is updated for new features of AWS Backup.",
        r"Policy::.*/service-role/AWSBackupServiceRolePolicyForBackup$",
    ),
    Suppression(
        "AwsSolutions-IAM5",
        "The names of tables that a restore replaces end with random letters of CloudFormation; "
        "the grant is for one table of the stage, until the restore is over.",
        r"Resource::arn:.*:table/tidings-[a-z0-9-]+-data-Tables[A-Z][a-z]+\*$",
    ),
)
OF_ONE_ADDRESS = (
    Suppression("AwsSolutions-CFR1", "The clients of a feed may be in any country."),
    Suppression(
        "AwsSolutions-CFR2",
        "The operator may create a web ACL in us-east-1 and set OneAddress.web_acl_arn. A web ACL "
        "would not protect the three addresses that CloudFront forwards to, which stay open "
        "(docs/adr/0055).",
    ),
    Suppression(
        "AwsSolutions-CFR4",
        "A distribution without a domain name of its own has CloudFront's certificate, with a "
        "fixed TLS policy; with a domain name the policy is TLS 1.2.",
    ),
)


def apply(stack: cdk.Stack) -> None:
    """Accept the findings above in *stack*, and no others."""
    cdk_nag.NagSuppressions.add_stack_suppressions(
        stack, [_as_nag(each) for each in (*ACCEPTED, *OPTIONAL, *OF_ONE_ADDRESS)]
    )


def _as_nag(suppression: Suppression) -> cdk_nag.NagPackSuppression:
    applies_to = None
    if suppression.finding is not None:
        applies_to = [cdk_nag.RegexAppliesTo(regex=f"/^{suppression.finding}/g")]
    return cdk_nag.NagPackSuppression(
        id=suppression.rule, reason=suppression.reason, applies_to=applies_to
    )
