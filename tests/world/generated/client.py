"""Use the client that openapi-generator (python) makes.

python client.py URL FEED PASSWORD
"""

import sys

import openapi_client as api

url, feed, password = sys.argv[1:]
configuration = api.Configuration(host=url, username="ann", password=password)
with api.ApiClient(configuration) as client:
    operation = api.Operation(event="insert", type="order", id="o-1", data={"total": 1})
    api.OperationsApi(client).post_operations(feed, api.PostOperationsRootRequest(operation))

    changes = api.ChangesApi(client)
    change = api.ChangeRequest(tags=["a"], data={"n": 7})
    posted = changes.post_change(feed, change)
    listed = changes.list_changes(feed, since=posted.id - 1)

    keys = api.KeysApi(client)
    key = keys.create_key(feed, api.KeyRequest(roles=["read"], label="a page"))
    held = [each.state for each in keys.list_keys(feed).keys if each.id == key.id]
    revoked = keys.revoke_key(feed, key.id)

    consumers = api.ConsumersApi(client)
    start = api.ConsumerRequest(var_from=api.ConsumerRequestFrom("oldest"), types=["order"])
    consumers.put_consumer(feed, "search", consumer_request=start)
    lease = consumers.lease_consumer(feed, "search", api.LeaseRequest(worker="w"))
    consumers.acknowledge_messages(feed, "search", api.Acknowledgement(fence=lease.fence))
    deleted = consumers.delete_consumer(feed, "search", why="a test", by="ann")
    print(listed.changes[-1].data["n"], *held, revoked.state, deleted.deleted)  # noqa: T201 the result of this program
