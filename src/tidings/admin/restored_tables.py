"""Settings of restored tables that DynamoDB does not restore."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidings.admin.target import boto3
from tidings.aws.config.deployment import TABLES
from tidings.aws.config.stages import data_stack_name, table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_UPDATED = ("StreamSpecification", "DeletionProtectionEnabled", "OnDemandThroughput")


def complete(stage: str, suffix: str, client: Any) -> None:
    """Give the restored tables with *suffix* the settings of the stage's template.

    An import into a stack does not apply the settings, and later deployments see no difference.
    The template has them even if the stage's own tables were deleted.
    """
    found = boto3().client("cloudformation").get_template(StackName=data_stack_name(stage))
    resources: Mapping[str, Any] = found["TemplateBody"]["Resources"]
    for table in TABLES:
        name, key = table_name(stage, table.name, suffix), f"Tables{table.name.capitalize()}"
        (wanted,) = (
            each["Properties"]
            for logical_id, each in resources.items()
            if logical_id.startswith(key) and each["Type"] == "AWS::DynamoDB::Table"
        )
        # The deployment creates a table that was not restored.
        with suppress(client.exceptions.ResourceNotFoundException):
            _complete(name, wanted, client)


def _complete(name: str, wanted: Mapping[str, Any], client: Any) -> None:
    described = client.describe_table(TableName=name)["Table"]
    for setting in _UPDATED:
        value = wanted.get(setting, False if setting == "DeletionProtectionEnabled" else None)
        if setting == "StreamSpecification" and value:
            value = {"StreamEnabled": True, **value}
        if value is not None and described.get(setting, False) != value:
            _wait(name, client)
            client.update_table(TableName=name, **{setting: value})
    _wait(name, client)
    expiry = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    if expiry["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification=wanted["TimeToLiveSpecification"]
        )
    if recovery := wanted.get("PointInTimeRecoverySpecification"):
        client.update_continuous_backups(TableName=name, PointInTimeRecoverySpecification=recovery)
    client.tag_resource(ResourceArn=described["TableArn"], Tags=wanted["Tags"])


def _wait(name: str, client: Any) -> None:
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 2})
