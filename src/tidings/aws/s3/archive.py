"""The parts of the archive on S3, one object per part."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tidings.aws.runtime.aws_errors import translated
from tidings.aws.s3.objects import read_whole
from tidings.core.archive.segments import Span, span_of
from tidings.http.archive_url import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

PART_BYTES_MAX = 64 * 1024 * 1024  # compressed; a reader holds the whole part in memory
_KEYS_MAX = 1000  # maximum of S3's ListObjectsV2
_BEHIND_DIGITS = "~"  # sorts after every name that begins with the same page


class S3Archive:
    """
    Implements `ArchiveStore`. *prefix* ends with a slash or is empty.

    *client* is called on first use: creating a client takes longer than most functions run, and
    most never read the archive.
    """

    def __init__(self, client: Callable[[], S3Client], bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = cache(client), bucket, prefix

    def put(self, feed: str, span: Span, body: bytes) -> None:
        with translated():
            self._client().put_object(Bucket=self._bucket, Key=self._key(feed, span), Body=body)

    def get(self, feed: str, span: Span) -> bytes | None:
        """
        Return the part of *feed* with *span*.

        Raises:
            TooLarge: it is larger than a function can hold.
            Unavailable: S3 does not answer.
        """
        key = self._key(feed, span)
        try:
            return read_whole(
                self._client(), self._bucket, key, what="part", bytes_max=PART_BYTES_MAX
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        spans: list[Span] = []
        for each in self._objects(feed, after, limit):
            span = span_of(each["Key"].removeprefix(self._folder(feed)))
            if span is not None and span.last > after:
                spans.append(span)
            if len(spans) == limit:
                break
        return spans

    def remove(self, feed: str, span: Span) -> None:
        with translated():
            self._client().delete_object(Bucket=self._bucket, Key=self._key(feed, span))

    def size(self, feed: str) -> int:
        return sum(each["Size"] for each in self._objects(feed, 0, _KEYS_MAX))

    def _objects(self, feed: str, after: int, limit: int) -> Iterator[ObjectTypeDef]:
        """Yield the objects after page *after*, with one request per thousand."""
        folder = self._folder(feed)
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Prefix": folder,
            "StartAfter": f"{folder}{after:013d}{_BEHIND_DIGITS}",
            "MaxKeys": min(limit, _KEYS_MAX),
        }
        while True:
            with translated():
                answer = self._client().list_objects_v2(**request)
            yield from answer.get("Contents", ())
            if not answer["IsTruncated"]:
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def _key(self, feed: str, span: Span) -> str:
        return self._folder(feed) + span.name

    def _folder(self, feed: str) -> str:
        return f"{self._prefix}{FOLDER}/{feed}/"
