"""The archive, the ledger of erasures, parts of plans, and the documents of sync jobs, on S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tidings.aws.clients import translate_errors
from tidings.core import limits
from tidings.core.errors import InvalidOperation, TooLarge, Unavailable
from tidings.http.settings import ARCHIVE_FOLDER, LEDGER_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

    from tidings.core.archive.segments import Generation, Span
    from tidings.core.effects import Clock
    from tidings.core.erasure.records import Erasure
    from tidings.core.feeds.records import Removed


def read_object(client: S3Client, bucket: str, key: str, *, what: str, bytes_max: int) -> bytes:
    """Return the bytes of an object. *what* is the word for the object in the error message.

    Raises:
        TooLarge: the object has more than *bytes_max* bytes, and was not read.
        Unavailable: S3 does not answer.
    """
    with translate_errors():
        answer = client.get_object(Bucket=bucket, Key=key)
        if answer["ContentLength"] > bytes_max:
            raise TooLarge(f"a {what} holds at most {bytes_max} bytes", field="key", value=key)
        return answer["Body"].read()


PART_BYTES_MAX = 64 * 1024 * 1024  # maximum size of a compressed part; a reader loads a whole part
_KEYS_MAX = 1000  # maximum number of keys that S3's ListObjectsV2 returns
# S3's errors if an object exists, and if another request creates it at the same time.
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_PART = ".gz"  # the end of the name of a part
_AFTER_DIGITS = "~"  # a page number with this suffix sorts after all names with that number


class S3Archive:
    """Implements `ArchiveStore`. *prefix* ends with a slash or is empty.

    *client* is called on first use: creating a client takes longer than most invocations, and most
    invocations do not read the archive.
    """

    def __init__(self, client: Callable[[], S3Client], bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = cache(client), bucket, prefix

    def put(self, feed: str, span: Span, body: bytes) -> None:
        with translate_errors():
            self._client().put_object(Bucket=self._bucket, Key=self._key(feed, span), Body=body)

    def get(self, feed: str, span: Span) -> bytes | None:
        """Return the part of *feed* with *span*; None if it is missing.

        Raises:
            TooLarge: the part has more than `PART_BYTES_MAX` bytes.
            Unavailable: S3 does not answer.
        """
        try:
            return self._read(feed, span.name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise

    def list(self, feed: str, after: int, limit: int) -> Sequence[Span]:
        from tidings.core.archive.generations import list_parts

        return list_parts(self, feed, after, limit)

    def parts(self, feed: str, generation: int, after: int, limit: int) -> Sequence[Span]:
        from tidings.core.archive.segments import folder_of, span_of  # not needed by syncs

        spans: list[Span] = []
        begin = f"{folder_of(generation)}{after:013d}{_AFTER_DIGITS}"
        for name, _ in self._objects(feed, folder_of(generation), begin, limit):
            span = span_of(name)
            if span is not None and span.last > after:
                spans.append(span)
            if len(spans) == limit:
                break
        return spans

    def generations(self, feed: str) -> Mapping[int, Generation]:
        from tidings.core.archive.generations import parse_generations

        names = [name for name, _ in self._objects(feed, "generation-")]
        return parse_generations(names, partial(self._read, feed))

    def begin(self, feed: str, number: int, generation: Generation) -> bool:
        from tidings.core.archive.generations import record_name

        key, body = self._folder(feed) + record_name(number), generation.to_json().encode()
        try:
            with translate_errors():
                self._client().put_object(Bucket=self._bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] in _EXISTS:
                return False
            raise
        return True

    def _read(self, feed: str, name: str) -> bytes:
        key = self._folder(feed) + name
        return read_object(self._client(), self._bucket, key, what="part", bytes_max=PART_BYTES_MAX)

    def remove(self, feed: str, span: Span) -> None:
        with translate_errors():
            self._client().delete_object(Bucket=self._bucket, Key=self._key(feed, span))

    def size(self, feed: str) -> int:
        found = self._objects(feed, "", delimiter="")
        return sum(size for name, size in found if name.endswith(_PART))

    def _objects(
        self, feed: str, prefix: str, after: str = "", limit: int = _KEYS_MAX, delimiter: str = "/"
    ) -> Iterator[tuple[str, int]]:
        """Yield the names in the folder of *feed* and sizes of all objects after the name *after*.

        Each request returns *limit* objects. Yield a folder below *prefix*, with a slash at the
        end, instead of its objects, unless *delimiter* is empty.
        """
        folder = self._folder(feed)
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Prefix": folder + prefix,
            "StartAfter": folder + after,
            "Delimiter": delimiter,
            "MaxKeys": min(limit, _KEYS_MAX),
        }
        while True:
            with translate_errors():
                answer = self._client().list_objects_v2(**request)
            for each in answer.get("Contents", ()):
                yield each["Key"].removeprefix(folder), each["Size"]
            for folder_ in answer.get("CommonPrefixes", ()):
                yield folder_["Prefix"].removeprefix(folder), 0
            if not answer["IsTruncated"]:
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def _key(self, feed: str, span: Span) -> str:
        return self._folder(feed) + span.name

    def _folder(self, feed: str) -> str:
        return f"{self._prefix}{ARCHIVE_FOLDER}/{feed}/"


class S3Ledger:
    """Implements `Ledger` with an object for each erasure, below `erasures/` next to the archive.

    *client*, *bucket* and *prefix* are as in `S3Archive`.
    """

    def __init__(self, client: Callable[[], S3Client], bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = cache(client), bucket, prefix

    def add(self, feed: str, erasure: Erasure) -> None:
        from tidings.core.erasure.records import to_json

        key = self._key(feed, erasure.id)
        with translate_errors():
            self._client().put_object(Bucket=self._bucket, Key=key, Body=to_json(erasure).encode())

    def entries(self, feed: str) -> Sequence[Erasure]:
        from tidings.core.erasure.records import from_json

        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._folder(feed)}
        found: list[Erasure] = []
        while True:
            with translate_errors():
                answer = self._client().list_objects_v2(**request)
            for each in answer.get("Contents", ()):
                text = read_object(
                    self._client(),
                    self._bucket,
                    each["Key"],
                    what="record of an erasure",
                    bytes_max=DOCUMENT_BYTES_MAX,
                )
                found.append(from_json(text.decode()))
            if not answer["IsTruncated"]:
                return found
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def remove(self, feed: str, erasure_id: str) -> None:
        with translate_errors():
            self._client().delete_object(Bucket=self._bucket, Key=self._key(feed, erasure_id))

    def _key(self, feed: str, erasure_id: str) -> str:
        return f"{self._folder(feed)}{erasure_id}.json"

    def _folder(self, feed: str) -> str:
        return f"{self._prefix}{LEDGER_FOLDER}/{feed}/"


class S3FeedFiles:
    """Implements `FeedData` with the parts of a feed's archive, and its ledger of erasures.

    *client*, *bucket* and *prefix* are as in `S3Archive`.
    """

    def __init__(
        self, client: Callable[[], S3Client], bucket: str, prefix: str, steady: Clock
    ) -> None:
        self._client, self._bucket, self._prefix = cache(client), bucket, prefix
        self._steady = steady

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """See `FeedData`. No place is needed, because objects that were removed are not listed."""
        from tidings.core.feeds.records import Removed

        counts: dict[str, int] = {}
        for location, folder in (("archive", ARCHIVE_FOLDER), ("erasures", LEDGER_FOLDER)):
            prefix = f"{self._prefix}{folder}/{key}/"
            while found := self._some(prefix):
                self._remove(found)
                counts[location] = counts.get(location, 0) + len(found)
                if self._steady() >= until_ms:
                    return Removed("", counts)
        return Removed(None, counts)

    def _some(self, prefix: str) -> list[ObjectTypeDef]:
        with translate_errors():
            answer = self._client().list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, MaxKeys=_KEYS_MAX
            )
        return answer.get("Contents", [])

    def _remove(self, found: list[ObjectTypeDef]) -> None:
        keys = [{"Key": each["Key"]} for each in found]
        with translate_errors():
            answer = self._client().delete_objects(
                Bucket=self._bucket,
                Delete={"Objects": keys, "Quiet": True},  # type: ignore[typeddict-item]
            )
        if errors := answer.get("Errors"):
            raise Unavailable(f"{errors[0].get('Key')}: {errors[0].get('Message')}")


# If the caller may not list the bucket, S3 answers AccessDenied for a missing object.
_MISSING = frozenset({"NoSuchKey", "AccessDenied"})
DOCUMENT_BYTES_MAX = 16 * 1024 * 1024  # enough for the names of 100,000 parts; read into memory


def read_document(client: S3Client, bucket: str, key: str) -> dict[str, Any] | None:
    """Return the JSON document *key*; None if the object does not exist.

    Raises:
        TooLarge: the document has more than `DOCUMENT_BYTES_MAX` bytes.
        Unavailable: S3 does not answer.
    """
    try:
        text = read_object(client, bucket, key, what="document", bytes_max=DOCUMENT_BYTES_MAX)
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING:
            return None
        raise
    document: dict[str, Any] = json.loads(text)
    return document


# Maximum size of a compressed part of a plan. A part is read into memory, because S3 disconnects
# slow readers.
PLAN_PART_BYTES_MAX = 64 * 1024 * 1024
_LINE_BYTES_MAX = 6 * limits.OPERATION_BYTES_MAX + 1024  # each byte may be escaped as \u00XX


def plan_lines(client: S3Client, bucket: str, key: str) -> Iterator[bytes]:
    """Return an iterator of the lines of a plan's part, which decompresses the part on demand.

    Raises:
        TooLarge: the part has more than `PLAN_PART_BYTES_MAX` bytes.
        InvalidOperation: the part is not gzip, or is truncated. The iterator raises this error when
            it reaches the invalid place.
        Unavailable: S3 does not answer.
    """
    packed = read_object(client, bucket, key, what="part", bytes_max=PLAN_PART_BYTES_MAX)
    return _unpack(packed, key)


def _unpack(packed: bytes, key: str) -> Iterator[bytes]:
    import gzip
    import zlib
    from io import BytesIO

    try:
        with gzip.open(BytesIO(packed)) as file:
            # A line above this limit is cut. Its parts are invalid JSON, and are refused as such.
            yield from iter(partial(file.readline, _LINE_BYTES_MAX), b"")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidOperation(
            f"must be a whole gzip file ({error})", field="key", value=key
        ) from None
