"""Use the client that openapi-python-client makes.

python attrs_client.py URL FEED PASSWORD
"""

import sys
from base64 import b64encode

from tidings_client import AuthenticatedClient
from tidings_client.api.changes import list_changes, post_change
from tidings_client.api.consumers import (
    acknowledge_messages,
    delete_consumer,
    lease_consumer,
    put_consumer,
)
from tidings_client.api.keys import create_key, list_keys, revoke_key
from tidings_client.api.operations import post_operations
from tidings_client.models import (
    Acknowledgement,
    ChangeRequest,
    ConsumerRequest,
    ConsumerRequestFromType0,
    KeyRequest,
    KeyRequestRolesItem,
    LeaseRequest,
    Operation,
    OperationEvent,
)

url, feed, password = sys.argv[1:]
token = b64encode(f"ann:{password}".encode()).decode()
with AuthenticatedClient(url, token, "Basic", raise_on_unexpected_status=True) as client:
    operation = Operation(OperationEvent.INSERT, "order", "o-1", data={"total": 1})
    post_operations.sync(feed, client=client, body=operation)

    change = ChangeRequest(tags=["a"], data={"n": 7})
    posted = post_change.sync(feed, client=client, body=change)
    listed = list_changes.sync(feed, client=client, since=posted.field_id - 1)

    wanted = KeyRequest([KeyRequestRolesItem.READ], label="a page")
    key = create_key.sync(feed, client=client, body=wanted)
    held = [each.state for each in list_keys.sync(feed, client=client).keys if each.id == key.id]
    revoked = revoke_key.sync(feed, key.id, client=client)

    start = ConsumerRequest(ConsumerRequestFromType0.OLDEST, types=["order"])
    put_consumer.sync(feed, "search", client=client, body=start)
    lease = lease_consumer.sync(feed, "search", client=client, body=LeaseRequest("w"))
    done = Acknowledgement(lease.fence)
    acknowledge_messages.sync(feed, "search", client=client, body=done)
    deleted = delete_consumer.sync(feed, "search", client=client, why="a test", by="ann")
    print(listed.changes[-1].data["n"], *held, revoked.state, deleted.deleted)  # noqa: T201 the result of this program
