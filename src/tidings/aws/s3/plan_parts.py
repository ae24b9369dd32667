"""The parts of a plan on S3: gzipped NDJSON, one object per part."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from tidings.aws.s3.objects import read_whole
from tidings.core import limits
from tidings.core.errors import InvalidOperation

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES_MAX = 64 * 1024 * 1024  # compressed; held in memory, as S3 disconnects slow readers
_LINE_BYTES_MAX = 6 * limits.OPERATION_BYTES_MAX + 1024  # each byte may be escaped as \u00XX


def lines(client: S3Client, bucket: str, key: str) -> Iterator[bytes]:
    """
    Yield the lines of a part, decompressed on demand.

    Raises:
        TooLarge: the part is larger than a run can hold.
        InvalidOperation: the part is not gzip, or is truncated; raised when reading reaches that
            place.
        Unavailable: S3 does not answer.
    """
    packed = read_whole(client, bucket, key, what="part", bytes_max=PART_BYTES_MAX)
    return _unpacked(packed, key)


def _unpacked(packed: bytes, key: str) -> Iterator[bytes]:
    try:
        with gzip.open(BytesIO(packed)) as file:
            # A line that is truncated here is invalid JSON, and is refused as such.
            yield from iter(partial(file.readline, _LINE_BYTES_MAX), b"")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidOperation(
            f"must be a whole gzip file ({error})", field="key", value=key
        ) from None
