"""
AWS clients, each made once per process with the time limits of its job.

They are those of `boto3.client`, made by botocore itself: what boto3 imports beside it (s3transfer,
multiprocessing) takes 11 ms of every start and nothing here calls it.
Endpoint, region and credentials come from the environment, as botocore reads it.
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

_CONNECT_S = 1  # within a Region a connection takes 1 ms; more means that it will not come
_READ_S = 3  # three attempts stay within the ten seconds of the shortest function that writes
_SOCKET_S = 1  # to connect and again to answer: four closes must fit behind a follower's run
_LEASE_READ_S = 1  # a quarter of the time that a leadership lease is held
_LEASE_ATTEMPTS = 2  # the second one opens a new connection where the first one's was dead
_ATTEMPTS = 3
_CONNECTIONS = 16  # threads that one process sends with, and some to spare

# Of the services, as they were read: 25 ms of the 35 that a first client takes. They hold nothing
# of a process, so a snapshot may hold them (`snapshots`).
_DESCRIPTIONS = create_loader()


def _config(attempts: int) -> Config:
    return Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        max_pool_connections=_CONNECTIONS,
        parameter_validation=False,  # it visits every attribute of a batch again; mypy checks them
    )


@cache
def session() -> Session:
    """What clients share, credentials above all."""
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
    Sends each request once. For writes without a condition: a first attempt that was given up
    may still land after the second, and after what was written next.
    """
    return _dynamodb(_config(1))


@cache
def coordination(region: str, endpoint: str) -> DynamoDBClient:
    """
    For a table that may be an ocean away. A leadership lease is renewed every second: no renewal
    waits longer for its answer than until the next one is due.
    """
    config = _config(_LEASE_ATTEMPTS).merge(Config(read_timeout=_LEASE_READ_S))
    where: Any = {"region_name": region or None, "endpoint_url": endpoint or None}
    if twin_keys.find(endpoint):  # another twin's, which ours does not open
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
    """Without retries of its own: the core counts the attempts of each message."""
    from tidings.aws.gateway.ws_sender import ApiGatewaySockets

    return ApiGatewaySockets(url, _SOCKET_S, ca_certs())


def ca_certs() -> str | None:
    """The file of authorities that botocore trusts, for calls that do not go through it."""
    from botocore.httpsession import get_cert_path

    return get_cert_path(True)
