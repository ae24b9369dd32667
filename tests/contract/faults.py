"""Answers of AWS other than success, below botocore: its own retries and pauses are part of it.

Real AWS gives them rarely, and no emulator does. Sources: "Error handling with DynamoDB",
"TransactWriteItems" and "Error responses" of Amazon S3 in AWS's documentation.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

Process = Callable[[], Any]
Answered = Callable[["AWSPreparedRequest", Process], Any]

# Codes of answers to a request that was not executed.
_BUSY = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
_HELD = ("TransactionConflictException", "ReplicatedWriteConflictException")
_REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")
_REASONED = {
    "message": "exceeded",
    "ThrottlingReasons": [{"reason": "KeyRangeThroughputExceeded", "resource": "table/log"}],
}
# By service, with their status: codes of answers to a request that was not executed, and of those
# after which it is not known.
_FAULTS = {"InternalServerError": 500, "ServiceUnavailable": 503}
_OTHERS = {
    "lambda": (
        {
            "ResourceConflictException": 409,
            "SnapStartNotReadyException": 409,
            "TooManyRequestsException": 429,
        },
        {"ServiceException": 500},
    ),
    "s3": ({"RequestTimeout": 400, "SlowDown": 503}, {"InternalError": 500, "SlowDown": 503}),
}
_LEFT_OVER = {"BatchWriteItem": "UnprocessedItems", "BatchGetItem": "UnprocessedKeys"}


def operation_of(request: AWSPreparedRequest) -> str:
    """Return the operation of a request to DynamoDB; "" for a request to another service."""
    target = request.headers.get("X-Amz-Target", b"")
    return (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]


class Faults:
    """Let a *share* of the requests fail, chosen by *random*; *played* counts what was answered."""

    def __init__(self) -> None:
        self.random, self.share = random.Random(0), 0.0
        self.played = Counter[str]()

    def __call__(self, request: AWSPreparedRequest, process: Process) -> Any:
        if self.random.random() >= self.share:
            return process()
        name = operation_of(request)
        if self.random.random() < 0.5:
            return self._refused(name, request)
        if self.random.random() < 0.5:
            self._note("executed")
            process()
        return self._lost(name, request.url)

    def _note(self, played: str) -> str:
        self.played[played] += 1
        return played

    def _refused(self, name: str, request: AWSPreparedRequest) -> Any:
        if not name:
            return self._other(request.url, 0)
        if name in _LEFT_OVER and self.random.random() < 0.5:
            left = self._note(_LEFT_OVER[name])
            body: Any = request.body
            return _of_dynamodb(200, "", {left: json.loads(body)["RequestItems"], "Responses": {}})
        if name == "TransactWriteItems":
            reason = self._note(self.random.choice(_REASONS))
            told = {"CancellationReasons": [{"Code": "None"}, {"Code": reason}]}
            return _of_dynamodb(400, "TransactionCanceledException", told)
        held = _HELD if name in ("PutItem", "UpdateItem", "DeleteItem") else ()
        code = self._note(self.random.choice(_BUSY + held))
        return _of_dynamodb(400, code, _REASONED)

    def _lost(self, name: str, url: str) -> Any:
        code = self.random.choice(["", "closed", "silent"])
        if not code:
            return self._other(url, 1) if not name else self._of(_FAULTS, _of_dynamodb)
        self._note(code)
        if code == "closed":
            raise ConnectionClosedError(endpoint_url=url)
        raise ReadTimeoutError(endpoint_url=url)

    def _other(self, url: str, unknown: int) -> Any:
        service, answer = ("lambda", _of_lambda) if "/functions/" in url else ("s3", _of_s3)
        return self._of(_OTHERS[service][unknown], answer)

    def _of(self, statuses: Mapping[str, int], answer: Callable[[int, str], Any]) -> Any:
        code = self._note(self.random.choice([*statuses]))
        return answer(statuses[code], code)


def _of_dynamodb(status: int, code: str, told: Mapping[str, Any] = {}) -> Any:
    error = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}"} if code else {}
    headers = {"content-type": "application/x-amz-json-1.0"}
    return status, headers, json.dumps({**told, **error}).encode()


def _of_lambda(status: int, code: str) -> Any:
    headers = {"content-type": "application/json", "x-amzn-errortype": code}
    return status, headers, b'{"Type":"Service","Message":"later"}'


def _of_s3(status: int, code: str) -> Any:
    text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>later</Message></Error>'
    return status, {"content-type": "application/xml"}, text.encode()
