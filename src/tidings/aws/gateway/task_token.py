"""The answer to a sync that waits for one."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError
from tidings.core.sync import workflow

_MISSING = ("NoSuchKey", "AccessDenied")  # of who may not list the bucket
_OVER = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


class NotWaiting(Exception):
    """Nobody waits for this answer: no such sync, it does not ask, or it was answered."""


def answer(id: str, *, approved: bool, bucket: str, objects: Any, machines: Any) -> None:
    """
    Let the sync *id* apply its plan, or end. *objects* and *machines* are clients of S3 and of
    Step Functions.

    Raises:
        NotWaiting: see there.
    """
    key = workflow.approval(id)
    try:
        stored: bytes = objects.get_object(Bucket=bucket, Key=key)["Body"].read()
        # Step Functions may have written the string as JSON.
        token = stored.decode().strip().strip('"')
        machines.send_task_success(taskToken=token, output=json.dumps({"approved": approved}))
    except ClientError as error:
        if error.response["Error"]["Code"] in (*_MISSING, *_OVER):
            raise NotWaiting(f"the sync {id} does not wait for an answer") from None
        raise
    objects.delete_object(Bucket=bucket, Key=key)
