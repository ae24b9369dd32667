"""Privileges that no scene uses, and why a role has them all the same."""

from __future__ import annotations

from fnmatch import fnmatchcase

# Calls of the platform in the role's name, before or after the function itself.
PLATFORM = {
    "logs:*": "the platform writes the function's log",
    "kms:*": "DynamoDB and S3 use the stage's key: `roles.Roles.implied`",
    "dynamodb:DescribeStream": "the event source mapping reads the stream",
    "dynamodb:GetRecords": "likewise",
    "dynamodb:GetShardIterator": "likewise",
    "dynamodb:ListStreams": "likewise",
    "s3:ListBucket *GivenUpBucket*": "Lambda keeps what the mapping gives up",
    "s3:PutObject *GivenUpBucket*": "likewise",
}
# These need more time or rarer faults than a scene has; another test shows them.
RARE = {
    "lambda:InvokeFunction *-follow-state:live": "a run's time is up: "
    "tests/unit/core/followers/test_follower.py",
    "lambda:InvokeFunction *-follow-push:live": "likewise",
    "lambda:InvokeFunction *-follow-archive:live": "likewise",
    "lambda:InvokeFunction *-replay:live": "likewise: tests/unit/core/websocket/test_replay.py",
    "lambda:InvokeFunction *-follow-relay:live": "a feed is chained: "
    "tests/functions/test_supervise.py",
    "execute-api:ManageConnections */DELETE/*": "a client is too slow: "
    "tests/unit/core/websocket/test_send.py",
}
# The same, of one function.
OF_ONE = {
    "follow-archive": {
        "dynamodb:GetItem */control": "its page is gone from the log: "
        "tests/unit/core/followers/test_follower.py",
        "dynamodb:Query */control": "a page before others is not there: "
        "tests/unit/core/log/test_reader.py",
    },
    "index": {"dynamodb:Query */control": "likewise"},
    "erase": {
        "s3:DeleteObject */archive/*": "functions before a restore have archived lost pages: "
        "tests/unit/core/erasure/test_eraser.py"
    },
    "replay": {
        "dynamodb:DeleteItem */connections": "its client is gone: "
        "tests/unit/core/websocket/test_replay.py",
        "dynamodb:Query */control": "it falls off the log: tests/unit/core/catchup/test_catchup.py",
    },
    "sweep": {
        "execute-api:ManageConnections */POST/*": "it only cuts; one word grants both in blueprint"
    },
}


def excused(function: str, action: str, resource: str) -> str | None:
    """Return the reason why nothing uses a privilege, if it is known."""
    for pattern, reason in (PLATFORM | RARE | OF_ONE.get(function, {})).items():
        wanted, _, where = pattern.partition(" ")
        if fnmatchcase(action, wanted) and fnmatchcase(resource, where or "*"):
            return reason
    return None
