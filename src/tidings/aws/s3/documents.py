"""JSON documents on S3: the reports of sync jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tidings.aws.s3.objects import read_whole

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# For a missing object S3 answers AccessDenied without the permission to list the bucket.
_MISSING = frozenset({"NoSuchKey", "AccessDenied"})
DOCUMENT_BYTES_MAX = 16 * 1024 * 1024  # it names up to 100,000 parts; held in memory


def read(client: S3Client, bucket: str, key: str) -> dict[str, Any] | None:
    """
    Return the document; None if the object does not exist.

    Raises:
        TooLarge: it is larger than a function can hold.
        Unavailable: S3 does not answer.
    """
    try:
        text = read_whole(client, bucket, key, what="document", bytes_max=DOCUMENT_BYTES_MAX)
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING:
            return None
        raise
    document: dict[str, Any] = json.loads(text)
    return document
