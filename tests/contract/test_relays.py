"""The contract of relays and of coordinators, and writes of which the answer was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from moto import mock_aws
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.samples import relay_of
from tests.contract.stores import Stores, client_in, unset
from tests.contract.test_records import THING, put
from tidings.aws.dynamodb.clusters import ClusterRecords
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core import limits
from tidings.core.counters import LogCounter
from tidings.core.errors import BrokenRelay, Unavailable
from tidings.core.model.pages import Page, encode
from tidings.core.records import Write, expected_version
from tidings.core.replication.election import Coordinator, LeaderLease, Member
from tidings.core.replication.relay import Counts, Relay, RelayPasswords
from tidings.core.replication.source import Role

AT = 4_102_444_800_000  # in 2100: pages expire


def page(number: int, *lines: str) -> Page:
    body = encode(lines) if lines else ""
    return Page(number, body, "relay", AT + number, AT + 10**9)


class TestRelays:
    def test_a_relay_comes_back(self, stores: Stores, feed: str) -> None:
        """Every field, with the next version; an empty one if it is missing."""
        wanted, other = relay_of(feed), Relay(f"{feed}-other")
        assert unset(wanted) == ["version"]
        assert stores.relays.relay(feed) == Relay(feed)
        assert stores.relays.write(Relay(feed), wanted)
        assert stores.relays.write(other, other)
        assert stores.relays.relay(feed) == replace(wanted, version=1)
        assert stores.relays.relay(other.feed) == replace(other, version=1)

    def test_two_who_write_at_once_cannot_undo_each_other(self, stores: Stores, feed: str) -> None:
        """The second one finds another version, with or without a stored relay."""
        fresh = Relay(feed)
        assert stores.relays.write(fresh, relay_of(feed))
        assert not stores.relays.write(fresh, replace(fresh, error="late"))
        standing = stores.relays.relay(feed)
        assert stores.relays.write(standing, replace(standing, error="first"))
        assert not stores.relays.write(standing, replace(standing, error="second"))
        assert stores.relays.relay(feed).error == "first"

    def test_D5_pages_are_written_with_the_checkpoint(self, stores: Stores, feed: str) -> None:
        """Pages, relay and head at once; operations are counted."""
        before = Relay(feed)
        after = replace(before, checkpoint=2, counts=Counts(pages=2, operations=3))
        pages = [page(1, '{"a":1}', '{"a":2}'), page(2, '{"a":3}')]
        assert stores.relays.append(before, after, pages)
        assert stores.relays.relay(feed) == replace(after, version=1)
        found = stores.log.read(feed, 0)
        assert [(each.number, each.text, each.at_ms) for each in found] == [
            (each.number, each.text, each.at_ms) for each in pages
        ]
        assert stores.log.head(feed) == 2
        assert stores.log.log_counter(feed) == LogCounter(2, 3)

    def test_D31_without_the_checkpoint_no_page_is_written(self, stores: Stores, feed: str) -> None:
        """An overtaken writer has written nothing."""
        before = Relay(feed)
        assert stores.relays.write(before, replace(before, error="an operator was here"))
        assert not stores.relays.append(before, replace(before, checkpoint=1), [page(1, "{}")])
        assert stores.log.read(feed, 0) == []
        assert stores.log.head(feed) == 0
        assert stores.relays.relay(feed).checkpoint == 0

    def test_D8_a_page_is_never_written_twice(self, stores: Stores, feed: str) -> None:
        """If one of many numbers is taken, nothing is written, and the checkpoint stays."""
        stores.log.put(feed, page(2, '{"of":"somebody else"}'))
        before = Relay(feed)
        after = replace(before, checkpoint=3)
        pages = [page(number, f'{{"n":{number}}}') for number in (1, 2, 3)]
        assert not stores.relays.append(before, after, pages)
        assert [each.text for each in stores.log.read(feed, 0)] == ['{"of":"somebody else"}']
        assert stores.relays.relay(feed) == before
        assert stores.log.head(feed) == 0

    def test_the_head_moves_without_a_page(self, stores: Stores, feed: str) -> None:
        """For example at the end of a copy."""
        before = Relay(feed)
        assert stores.relays.append(before, replace(before, checkpoint=70), [])
        assert stores.log.head(feed) == 70
        assert stores.log.read(feed, 0) == []

    def test_as_many_pages_as_a_relay_writes_fit(self, stores: Stores, feed: str) -> None:
        """In one transaction, some of them without anything left."""
        pages = [
            page(number, '{"n":1}', '{"n":2}').only([(1, '{"n":2}')] if number % 2 else [])
            for number in range(1, limits.BATCH_PAGES_MAX + 1)
        ]
        before = Relay(feed)
        assert stores.relays.append(before, replace(before, checkpoint=len(pages)), pages)
        found = stores.log.read(feed, 0)
        assert [list(each.entries()) for each in found] == [list(each.entries()) for each in pages]


class TestCoordinator:
    @pytest.fixture
    def cluster(self, feed: str) -> str:
        return f"cluster-of-{feed}"

    def test_a_lease_is_taken_by_one(self, stores: Stores, cluster: str) -> None:
        """The first one has the term and time; the other one has written nothing."""
        free = LeaderLease(cluster, 0)
        one = LeaderLease(cluster, 0, "https://one.example", 1, AT)
        other = LeaderLease(cluster, 0, "https://other.example", 1, AT + 1)
        assert list(stores.clusters.leases(cluster)) == []
        assert stores.clusters.take(free, one)
        assert not stores.clusters.take(free, other)
        assert list(stores.clusters.leases(cluster)) == [one]

    def test_a_lease_that_was_renewed_is_not_taken(self, stores: Stores, cluster: str) -> None:
        """The other member saw an older time, at which it had expired."""
        one = LeaderLease(cluster, 0, "https://one.example", 1, AT)
        renewed = replace(one, until_ms=AT + 1)
        other = LeaderLease(cluster, 0, "https://other.example", 2, AT + 5)
        assert stores.clusters.take(LeaderLease(cluster, 0), one)
        assert stores.clusters.take(one, renewed)
        assert not stores.clusters.take(one, other)
        assert stores.clusters.take(renewed, other)
        assert list(stores.clusters.leases(cluster)) == [other]

    def test_a_lease_is_given_up(self, stores: Stores, cluster: str) -> None:
        """Its term stays, so that the next one's is higher."""
        one = LeaderLease(cluster, 0, "https://one.example", 3, AT)
        assert stores.clusters.take(LeaderLease(cluster, 0), one)
        assert stores.clusters.take(one, replace(one, address="", until_ms=0))
        assert list(stores.clusters.leases(cluster)) == [LeaderLease(cluster, 0, "", 3, 0)]

    def test_leases_are_listed_by_number(self, stores: Stores, cluster: str) -> None:
        """The leases of this cluster alone."""
        leases = [
            LeaderLease(cluster, number, "https://one.example", 1, AT) for number in (1, 0, 7)
        ]
        for lease in [*leases, replace(leases[0], cluster=f"{cluster}-other")]:
            assert stores.clusters.take(LeaderLease(lease.cluster, lease.number), lease)
        assert [lease.number for lease in stores.clusters.leases(cluster)] == [0, 1, 7]

    def test_members_are_listed_by_address(self, stores: Stores, cluster: str) -> None:
        """With their last known state, those of this cluster alone."""
        one = Member(
            cluster=cluster,
            address="https://one.example",
            feed="main",
            role=Role.LEADER,
            checkpoint=7,
            heard_ms=AT,
        )
        other = Member(
            cluster=cluster,
            address="https://another.example",
            feed="m",
            role=Role.FOLLOWER,
            checkpoint=0,
            heard_ms=AT,
        )
        stranger = replace(other, cluster=f"{cluster}-other")
        for member in (one, other, stranger, replace(one, checkpoint=8, heard_ms=AT + 1)):
            stores.clusters.announce(member)
        found = list(stores.clusters.members(cluster))
        assert found == [other, replace(one, checkpoint=8, heard_ms=AT + 1)]


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


def put_document(client: DynamoDBClient, document: str) -> None:
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
    put_document(client, document)
    with pytest.raises(BrokenRelay, match="main: the stored relay cannot be read"):
        store.relay("main")


def test_a_document_of_a_later_version_is_read(
    client: DynamoDBClient, store: DynamoDBRelays
) -> None:
    """As during a deployment: unknown fields are ignored."""
    put_document(client, '{"checkpoint":7,"later":[1]}')
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


FIRST = put("a", 0, by="ann", gone=None)
WRITES = {"UpdateItem": [FIRST], "DeleteItem": [Write(THING, "b", None, expected_version(1))]}


@pytest.fixture
def records(client: DynamoDBClient) -> DynamoDBRecords:
    made = DynamoDBRecords(client, "control")
    assert made.write("main", [put("b", 0)])
    return made


@pytest.fixture
def repeating(client: DynamoDBClient) -> Callable[[str], None]:
    """Let botocore repeat the next request of an operation, as after a lost answer."""

    def repeat(operation: str) -> None:
        events: Any = client.meta.events  # its type does not know that a hook may return something
        events.register(f"needs-retry.dynamodb.{operation}", _first_only)

    return repeat


def _first_only(attempts: int, **_: object) -> float | None:
    return 0.0 if attempts == 1 else None


@pytest.mark.parametrize("operation", WRITES)
def test_a_write_whose_answer_was_lost_is_done(
    records: DynamoDBRecords, repeating: Callable[[str], None], operation: str
) -> None:
    """It is repeated, and finds what it has written itself."""
    repeating(operation)
    assert records.write("main", WRITES[operation])
    assert not records.write("main", [put("b", 1)]) or operation != "DeleteItem"


def test_the_same_write_by_another_process_is_refused(records: DynamoDBRecords) -> None:
    """It was not repeated, so it is not one's own."""
    assert records.write("main", [FIRST])
    assert not records.write("main", [FIRST])


def test_a_repeated_write_finds_that_of_another_process(
    records: DynamoDBRecords, repeating: Callable[[str], None]
) -> None:
    """It is not one's own."""
    assert records.write("main", [put("a", 0, by="bob")])
    repeating("UpdateItem")
    assert not records.write("main", [FIRST])
