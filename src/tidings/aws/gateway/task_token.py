"""Answer a sync that waits for approval."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from tidings.core.sync import workflow

_MISSING = ("NoSuchKey", "AccessDenied")  # returned by S3 without the permission to list the bucket
_OVER = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


class NotWaiting(Exception):
    """No sync waits for this answer: it does not exist, does not ask, or was already answered."""


def answer(id: str, *, approved: bool, bucket: str, objects: Any, machines: Any) -> None:
    """
    Approve or reject the plan of the sync *id*.

    *objects* and *machines* are clients of S3 and of Step Functions.

    Raises:
        NotWaiting: no sync waits for this answer.
    """
    key = workflow.approval(id)
    try:
        stored: bytes = objects.get_object(Bucket=bucket, Key=key)["Body"].read()
        # Step Functions may have encoded the string as JSON.
        token = stored.decode().strip().strip('"')
        machines.send_task_success(taskToken=token, output=json.dumps({"approved": approved}))
    except ClientError as error:
        if error.response["Error"]["Code"] in (*_MISSING, *_OVER):
            raise NotWaiting(f"the sync {id} does not wait for an answer") from None
        raise
    objects.delete_object(Bucket=bucket, Key=key)
