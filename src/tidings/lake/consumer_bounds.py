"""
Read the progress of every reader of a feed from the feed itself.

The HTTP client is imported on first use, because the job of a stage does not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.archive.compaction import bound
from tidings.core.consumers import position

if TYPE_CHECKING:
    from tidings.sync.target import Place


def over_http(url: str, feed: str, password: str) -> int:
    """
    Return the last page that all readers have handled, by the HTTP API.

    Raises:
        ClientError: the feed does not respond, or rejects the request.
    """
    from tidings.client.address import status_url
    from tidings.client.cli.status import fetch
    from tidings.client.errors import Refused
    from tidings.client.feed_api import NamedConsumers

    report = fetch(status_url(url, feed))
    if "followers" not in report.fields:
        raise Refused(report.problem or "the feed does not tell its followers")
    with NamedConsumers(url, feed, password=password) as api:
        standing = [position.read(each["position"]) for each in api.all()]
    return bound(
        standing, {each["name"]: each["checkpoint"] for each in report.fields["followers"]}
    )


def in_tables(place: Place) -> int:
    """
    Return the last page that all readers have handled, by the tables.

    Raises:
        Unavailable, BotoCoreError, ClientError: DynamoDB does not respond, or rejects the request.
    """
    from tidings.aws.dynamodb.consumers import DynamoDBConsumers

    client: Any = place.client()
    store = DynamoDBConsumers(client, place.settings.control_table, _no_id)
    standing = [each.position for each in store.consumers(place.feed)]
    return bound(standing, place.followers().checkpoints(place.feed))


def _no_id() -> str:
    raise AssertionError("nothing is written")
