"""Read whole objects from S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.runtime.aws_errors import translated
from tidings.core.errors import TooLarge

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def read_whole(client: S3Client, bucket: str, key: str, *, what: str, bytes_max: int) -> bytes:
    """
    Return the bytes of an object; *what* is its name in the error message.

    Raises:
        TooLarge: the object has more than *bytes_max* bytes; none of them was read.
        Unavailable: S3 does not answer.
    """
    with translated():
        answer = client.get_object(Bucket=bucket, Key=key)
        if answer["ContentLength"] > bytes_max:
            raise TooLarge(f"a {what} holds at most {bytes_max} bytes", field="key", value=key)
        return answer["Body"].read()
