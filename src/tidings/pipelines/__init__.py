"""Pipelines, which copy a feed into stores, and can transform each message with functions.

Each name is imported on first use, so that the dependencies of unused stores are not required.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.pipelines.aws import EventBridge as EventBridge
    from tidings.pipelines.aws import Kinesis as Kinesis
    from tidings.pipelines.aws import Sns as Sns
    from tidings.pipelines.aws import Sqs as Sqs
    from tidings.pipelines.aws import SqsQueue as SqsQueue
    from tidings.pipelines.feed import Call as Call
    from tidings.pipelines.feed import Feed as Feed
    from tidings.pipelines.files import Files as Files
    from tidings.pipelines.files import Frame as Frame
    from tidings.pipelines.files import Ndjson as Ndjson
    from tidings.pipelines.kafka import Kafka as Kafka
    from tidings.pipelines.kafka import KafkaTopics as KafkaTopics
    from tidings.pipelines.messages import Message as Message
    from tidings.pipelines.mongodb import MongoCollection as MongoCollection
    from tidings.pipelines.mongodb import MongoDB as MongoDB
    from tidings.pipelines.mysql import MySQL as MySQL
    from tidings.pipelines.mysql import MySQLTable as MySQLTable
    from tidings.pipelines.parquet import Parquet as Parquet
    from tidings.pipelines.pipeline import Pipeline as Pipeline
    from tidings.pipelines.pipeline import Source as Source
    from tidings.pipelines.pipeline import omit as omit
    from tidings.pipelines.pipeline import opfilter as opfilter
    from tidings.pipelines.pipeline import pick as pick
    from tidings.pipelines.pipeline import pretty as pretty
    from tidings.pipelines.pipeline import remap as remap
    from tidings.pipelines.pipeline import rename as rename
    from tidings.pipelines.pipeline import skip as skip
    from tidings.pipelines.postgres import Postgres as Postgres
    from tidings.pipelines.postgres import PostgresTable as PostgresTable
    from tidings.pipelines.rabbitmq import RabbitMQ as RabbitMQ
    from tidings.pipelines.rabbitmq import RabbitMQQueue as RabbitMQQueue
    from tidings.pipelines.redis import Redis as Redis
    from tidings.pipelines.search import Search as Search

    Table = PostgresTable
    Elasticsearch = Search
    OpenSearch = Search

_MODULES = {
    "Call": "feed",
    "Feed": "feed",
    "Files": "files",
    "Frame": "files",
    "Kafka": "kafka",
    "KafkaTopics": "kafka",
    "Message": "messages",
    "MongoCollection": "mongodb",
    "MongoDB": "mongodb",
    "MySQL": "mysql",
    "MySQLTable": "mysql",
    "Ndjson": "files",
    "Parquet": "parquet",
    "Pipeline": "pipeline",
    "Postgres": "postgres",
    "PostgresTable": "postgres",
    "RabbitMQ": "rabbitmq",
    "RabbitMQQueue": "rabbitmq",
    "Redis": "redis",
    "Search": "search",
    "Source": "pipeline",
    "SqsQueue": "aws",
    **dict.fromkeys(("EventBridge", "Kinesis", "Sns", "Sqs"), "aws"),
    **dict.fromkeys(("omit", "opfilter", "pick", "pretty", "remap", "rename", "skip"), "pipeline"),
}
_ALIASES = {"Table": "PostgresTable", "Elasticsearch": "Search", "OpenSearch": "Search"}
__all__ = sorted(_MODULES | _ALIASES)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_MODULES[_ALIASES.get(name, name)]}", __name__)
    except ModuleNotFoundError as error:
        from tidings.pipelines.templates import needs

        raise ModuleNotFoundError(f"{error.msg}{needs(name)}", name=error.name) from None
    return getattr(module, _ALIASES.get(name, name))
