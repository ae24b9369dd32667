"""Where a stage is, for commands that are told its name alone."""

from __future__ import annotations

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
from tidings.aws.config import stages
from tidings.operate.target import told


def addresses(stage: str) -> stages.Addresses:
    """
    Raises:
        ClickException: there is no such stage, or AWS cannot be asked.
    """
    with told():
        return stages.addresses(stage, boto3.client("cloudformation"))
