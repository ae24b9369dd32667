"""
GetRecords over plain HTTP, for pollers that call it often and mostly receive nothing.

boto3 takes 3 ms of CPU for an empty answer, this takes 0.3, and the engine needs half the time. The
records stay JSON, from which Lambda's events are built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from tidings.aws.config import twin_keys

TIMEOUT_S = 10.0  # the engine answers within milliseconds; a loaded machine may need seconds
READ_MAX = 1000  # the limit of GetRecords
_OK = 200
_DATE = "20260101"  # any date: the engine does not check the signature


class NotRead(Exception):
    """The engine refused or did not answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records, and the iterator after them; *after* None: the shard was read to its end."""

    records: Sequence[Mapping[str, Any]]
    after: str | None


class StreamReader:
    """One connection to the engine, for one thread at a time; reopened after it was closed."""

    def __init__(self, endpoint_url: str) -> None:
        parts = urlsplit(endpoint_url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.netloc, timeout=TIMEOUT_S)
        self._path = parts.path or "/"
        self._headers = _headers(endpoint_url)

    def read(self, iterator: str) -> Page:
        """
        Return the records at *iterator*.

        Raises:
            NotRead: the engine does not answer, or *iterator* has expired.
        """
        body = json.dumps({"ShardIterator": iterator, "Limit": READ_MAX}).encode()
        try:
            status, text = self._answer_with_retry(body)
            answer = json.loads(text) if status == _OK else None
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise NotRead(str(error)) from None
        if answer is None:
            raise NotRead(f"status {status}")
        return Page(answer["Records"], answer.get("NextShardIterator"))

    def close(self) -> None:
        self._connection.close()

    def _answer_with_retry(self, body: bytes) -> tuple[int, bytes]:
        try:
            return self._answer(body)
        except (BrokenPipeError, ConnectionResetError):  # closed while idle
            self.close()
            return self._answer(body)

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", self._path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _headers(endpoint_url: str) -> dict[str, str]:
    shown = twin_keys.credentials(endpoint_url)
    scope = f"{shown['aws_access_key_id']}/{_DATE}/{shown['region_name']}/dynamodb/aws4_request"
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDBStreams_20120810.GetRecords",
        "X-Amz-Date": f"{_DATE}T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
    }
