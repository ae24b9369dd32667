"""Cases outside the contract of relays: lost answers, and tampered documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from moto import mock_aws
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.stores import client_in
from tidings.aws.dynamodb.clusters import ClusterRecords
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.errors import BrokenRelay, Unavailable
from tidings.core.model.pages import Page
from tidings.core.replication.election import Coordinator, LeaderLease
from tidings.core.replication.relay import Counts, Relay, RelayPasswords

AT = 4_102_444_800_000  # in 2100: pages expire
BEFORE = Relay("main")
AFTER = replace(BEFORE, checkpoint=1, counts=Counts(1, 1))
PAGE = Page(1, '{"event":"update"}', "relay", AT, AT)
Breaking = Callable[[str], None]


@pytest.fixture
def client() -> Iterator[DynamoDBClient]:
    with mock_aws(), client_in({}) as made:
        yield made


@pytest.fixture
def store(client: DynamoDBClient) -> DynamoDBRelays:
    return DynamoDBRelays(client, "log", "control")


@pytest.fixture
def broken(client: DynamoDBClient) -> Breaking:
    """Cuts the connection at the point of a call that is named, once."""

    def cut(at: str) -> None:
        def fail(**_: object) -> None:
            client.meta.events.unregister(at, fail)
            raise ConnectionClosedError(endpoint_url="dynamodb")

        client.meta.events.register(at, fail)

    return cut


def test_D31_an_append_whose_answer_was_lost_is_done(
    store: DynamoDBRelays, broken: Breaking
) -> None:
    """The document says so; to do it again would be refused by the page that is there."""
    broken("after-call.dynamodb.TransactWriteItems")
    assert store.append(BEFORE, AFTER, [PAGE])
    assert store.relay("main") == replace(AFTER, version=1)
    assert not store.append(BEFORE, replace(AFTER, error="another"), [PAGE])


def test_an_append_that_is_repeated_finds_itself(store: DynamoDBRelays) -> None:
    """The same write by the same runner is not a conflict."""
    assert store.append(BEFORE, AFTER, [PAGE])
    assert store.append(BEFORE, AFTER, [PAGE])
    assert store.relay("main").version == 1


def test_D30_an_append_that_was_not_done_is_told(store: DynamoDBRelays, broken: Breaking) -> None:
    """It is not regarded as done."""
    broken("before-call.dynamodb.TransactWriteItems")
    with pytest.raises(Unavailable):
        store.append(BEFORE, AFTER, [PAGE])
    assert store.relay("main") == BEFORE


def put(client: DynamoDBClient, document: str) -> None:
    """Store the relay with the version 1, as all releases do."""
    relay = {"kind": "relay", "name": "main", "document": document}
    item: Any = {name: {"S": value} for name, value in relay.items()}
    client.put_item(TableName="control", Item={**item, "version": {"N": "1"}})


@pytest.mark.parametrize(
    "document", ["", "{", "[]", '{"checkpoint":"7"}', '{"wanted":"maybe"}', '{"copy":{"pages":1}}']
)
def test_D32_a_document_that_cannot_be_read_is_refused(
    client: DynamoDBClient, store: DynamoDBRelays, document: str
) -> None:
    """It is never taken for a feed that has nothing yet."""
    put(client, document)
    with pytest.raises(BrokenRelay, match="main: the stored relay cannot be read"):
        store.relay("main")


def test_a_document_of_a_later_version_is_read(
    client: DynamoDBClient, store: DynamoDBRelays
) -> None:
    """As during a deployment: unknown fields are ignored."""
    put(client, '{"checkpoint":7,"later":[1]}')
    assert store.relay("main") == replace(BEFORE, version=1, checkpoint=7)


def test_D41_a_coordinator_that_is_not_there_is_unavailable(client: DynamoDBClient) -> None:
    """Whatever AWS says about it: the role that one has is kept."""
    clusters = Coordinator(ClusterRecords(client, "nowhere"))
    with pytest.raises(Unavailable):
        clusters.leases("a")
    with pytest.raises(Unavailable):
        clusters.take(LeaderLease("a", 0), LeaderLease("a", 0, "https://one.example", 1, AT))


def test_a_password_of_an_upstream_is_kept_for_one_feed(client: DynamoDBClient) -> None:
    """Until it is taken away."""
    upstreams = RelayPasswords(DynamoDBRecords(client, "control"))
    assert upstreams.password("main") == ""
    upstreams.keep("main", "correct horse")
    assert upstreams.password("main") == "correct horse"
    assert upstreams.password("mai") == ""
    upstreams.keep("main", "")
    assert upstreams.password("main") == ""
