"""Objects on S3 that are held whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.runtime.aws_errors import translated
from tidings.core.errors import TooLarge

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def read_whole(client: S3Client, bucket: str, key: str, *, what: str, bytes_max: int) -> bytes:
    """
    The bytes of an object; *what* it is called in the error.

    Raises:
        TooLarge: it has more than *bytes_max*; none of them was read.
        Unavailable: S3 does not answer.
    """
    with translated():
        answer = client.get_object(Bucket=bucket, Key=key)
        if answer["ContentLength"] > bytes_max:
            raise TooLarge(f"a {what} holds at most {bytes_max} bytes", field="key", value=key)
        return answer["Body"].read()
