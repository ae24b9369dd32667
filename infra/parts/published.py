"""
Values that the stacks of a stage share: names of tables and buckets, ARNs of streams and key.

One stack writes each value to a parameter of Systems Manager, the others read it when they are
deployed. A CloudFormation export cannot change while another stack imports it, and the names of
tables change when tables are restored (ADR 53).
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.names import title
from infra.settings import Stage

# CloudFormation resolves it before it compares templates, so that a property that cannot be changed
# in place (the stream of a mapping) is recognized as unchanged.
_READ = "AWS::SSM::Parameter::Value<String>"


def publish(scope: Construct, stage: Stage, name: str, value: str) -> None:
    """Publish *value* as *name* for the other stacks of *stage*."""
    ssm.CfnParameter(
        scope, f"{title(name)}Told", name=_path(stage, name), type="String", value=value
    )


def read(scope: Construct, stage: Stage, name: str) -> str:
    """Return the value of *name* in *stage* at the time of a deployment."""
    made = cdk.CfnParameter(scope, f"{title(name)}Is", type=_READ, default=_path(stage, name))
    return made.value_as_string


def _path(stage: Stage, name: str) -> str:
    return f"/tidings/{stage.name}/{name}"
