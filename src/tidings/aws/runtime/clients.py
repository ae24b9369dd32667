"""
AWS clients, each created once per process with time limits for its purpose.

They equal the clients of `boto3.client` but are created by botocore: boto3's additional imports
(s3transfer, multiprocessing) take 11 ms of every start and are not used. Endpoint, region and
credentials come from the environment, as botocore reads it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session

from tidings.aws.config import twin_keys
from tidings.aws.dynamodb.transport import raw_query

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client

    from tidings.aws.gateway.ws_sender import ApiGatewaySockets

_CONNECT_S = 1  # within a Region a connection takes 1 ms; after 1 s it will not succeed
_READ_S = 3  # three attempts fit in the ten seconds of the shortest function that writes
_SOCKET_S = 1  # to connect, and again to answer: four closes must fit after a follower's run
_LEASE_READ_S = 1  # a quarter of the duration of a leadership lease
_LEASE_ATTEMPTS = 2  # the second one opens a new connection if the first one's was dead
_ATTEMPTS = 3
_CONNECTIONS = 16  # sending threads of one process, plus a margin

# The parsed service descriptions: 25 of the 35 ms of creating the first client. They contain no
# process state, so a snapshot may contain them (`snapshots`).
_DESCRIPTIONS = create_loader()


def _config(attempts: int) -> Config:
    return Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        max_pool_connections=_CONNECTIONS,
        parameter_validation=False,  # it checks every attribute of a batch again; mypy checks them
    )


@cache
def session() -> Session:
    """Return the session that the clients share, with its credentials."""
    made = Session()
    made.register_component("data_loader", _DESCRIPTIONS)
    return made


def _dynamodb(config: Config, **where: Any) -> DynamoDBClient:
    made = session().create_client("dynamodb", config=config, **where)
    client = cast("DynamoDBClient", made)
    raw_query.read_items_raw(client)
    return client


@cache
def dynamodb() -> DynamoDBClient:
    return _dynamodb(_config(_ATTEMPTS))


@cache
def dynamodb_once() -> DynamoDBClient:
    """
    Return a client that does not retry, for writes without a condition.

    After a timeout, the first attempt may still be executed after the second one, and overwrite a
    later write.
    """
    return _dynamodb(_config(1))


@cache
def coordination(region: str, endpoint: str) -> DynamoDBClient:
    """
    Return a client for the table of the leader election, which may be far away.

    A leadership lease is renewed every second: no renewal waits for its answer longer than until
    the next one is due.
    """
    config = _config(_LEASE_ATTEMPTS).merge(Config(read_timeout=_LEASE_READ_S))
    where: Any = {"region_name": region or None, "endpoint_url": endpoint or None}
    if twin_keys.find(endpoint):  # of another twin, which has its own key
        where |= twin_keys.credentials(endpoint)
    return _dynamodb(config, **where)


@cache
def functions() -> LambdaClient:
    made = session().create_client("lambda", config=_config(_ATTEMPTS))
    return cast("LambdaClient", made)


@cache
def objects() -> S3Client:
    return cast("S3Client", session().create_client("s3", config=_config(_ATTEMPTS)))


@cache
def sockets(url: str) -> ApiGatewaySockets:
    """Return a sender without retries: the core counts the attempts of each message."""
    from tidings.aws.gateway.ws_sender import ApiGatewaySockets

    return ApiGatewaySockets(url, _SOCKET_S, ca_certs())


def ca_certs() -> str | None:
    """Return the file of CA certificates that botocore trusts, for requests without botocore."""
    from botocore.httpsession import get_cert_path

    return get_cert_path(True)
