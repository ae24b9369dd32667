"""Write to your own DynamoDB table and to a feed in one transaction.

The operations are put into the feed's outbox if, and only if, the writes succeed. Tidings forwards
the operations from the outbox to the feed, so a crash cannot lose them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidings.core.model.operations import to_ascii_json

# An item of DynamoDB may have 400 KB, including the names of its attributes.
BODY_BYTES_MAX = 380_000
ID_BYTES = 12


def publish_with(
    client: Any,
    writes: Sequence[Mapping[str, Any]],
    *,
    outbox: str,
    feed: str = "main",
    operations: Iterable[Mapping[str, Any]] = (),
    items: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Do *writes*, and put *operations* or *items* into the outbox, in one transaction.

    *items* are items of Triton's protocol (PROTOCOL 13). Return the id of the message in the
    outbox. *client* is a DynamoDB client of boto3. *writes* are up to 99 `TransactItems` of
    DynamoDB, in the region and account of the table *outbox*, which is the stage's output
    `OutboxTable`. The message is appended to *feed* as one request, within seconds. Messages are
    appended in the order of the writers' clocks. A message that the feed refuses is set aside in
    the outbox.

    Raises:
        ValueError: neither or both of *operations* and *items* are given, or the message is too
            large for an item of DynamoDB.
        botocore.exceptions.ClientError: the transaction was refused; nothing was written.
    """
    by_kind = {"operations": list(operations), "items": list(items)}
    kinds = [kind for kind, entries in by_kind.items() if entries]
    if len(kinds) != 1:
        raise ValueError("give either operations or items")
    body = "\n".join(to_ascii_json(entry) for entry in by_kind[kinds[0]])
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"{kinds[0]}: must have at most {BODY_BYTES_MAX} bytes, has {len(body)}")
    message_id = f"{time.time_ns() // 1_000_000:013d}-{secrets.token_hex(ID_BYTES)}"
    message = {
        "feed": {"S": feed},
        "id": {"S": message_id},
        "kind": {"S": kinds[0]},
        "body": {"S": body},
    }
    put = {"TableName": outbox, "Item": message}
    client.transact_write_items(TransactItems=[*writes, {"Put": put}])
    return message_id
