"""The records of clusters on DynamoDB, in a table that all members share.

The table may belong to another account. A missing table or permission is raised as `Unavailable`,
so that a relay keeps its role and continues to copy.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidings.core.records import Kind, Record, Write


class ClusterRecords(DynamoDBRecords):
    """Raise every error of a request as `Unavailable`."""

    def query(self, feed: str, kind: Kind, of: str = "", **options: Any) -> Iterator[Record]:
        with _translate_errors():
            return iter([*super().query(feed, kind, of, **options)])

    def write(self, feed: str, writes: Sequence[Write], *, mark: bool = True) -> bool:
        with _translate_errors():
            return super().write(feed, writes, mark=mark)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate every error of a request."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(str(error)) from error
