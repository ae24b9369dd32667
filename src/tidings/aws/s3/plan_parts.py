"""The parts of a plan on S3: gzipped NDJSON, one object a part."""

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

PART_BYTES_MAX = 64 * 1024 * 1024  # packed; held whole, as S3 cuts who reads slowly
_LINE_BYTES_MAX = 6 * limits.OPERATION_BYTES_MAX + 1024  # each byte may have been written \u00XX


def lines(client: S3Client, bucket: str, key: str) -> Iterator[bytes]:
    """
    The lines of a part; unpacked as they are asked for.

    Raises:
        TooLarge: the part is larger than a run can hold.
        InvalidOperation: not gzip, or its end is missing; told where the reading gets there.
        Unavailable: S3 does not answer.
    """
    packed = read_whole(client, bucket, key, what="part", bytes_max=PART_BYTES_MAX)
    return _unpacked(packed, key)


def _unpacked(packed: bytes, key: str) -> Iterator[bytes]:
    try:
        with gzip.open(BytesIO(packed)) as file:
            # A line that is cut here is no JSON any more, and is refused as such.
            yield from iter(partial(file.readline, _LINE_BYTES_MAX), b"")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidOperation(
            f"must be a whole gzip file ({error})", field="key", value=key
        ) from None
