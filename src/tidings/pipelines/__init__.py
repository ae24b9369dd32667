"""
Pipelines: copy a feed into stores through functions; each store keeps its own position.

Each name is imported on first use, so that the dependencies of unused stores are not required.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.pipelines.message import Message as Message
    from tidings.pipelines.pipeline import Pipeline as Pipeline
    from tidings.pipelines.pipeline import Source as Source
    from tidings.pipelines.sinks.aws import EventBridge as EventBridge
    from tidings.pipelines.sinks.aws import Kinesis as Kinesis
    from tidings.pipelines.sinks.aws import Sns as Sns
    from tidings.pipelines.sinks.aws import Sqs as Sqs
    from tidings.pipelines.sinks.call import Call as Call
    from tidings.pipelines.sinks.feed import Feed as Feed
    from tidings.pipelines.sinks.kafka import Kafka as Kafka
    from tidings.pipelines.sinks.mongodb import MongoDB as MongoDB
    from tidings.pipelines.sinks.mysql import MySQL as MySQL
    from tidings.pipelines.sinks.ndjson import Ndjson as Ndjson
    from tidings.pipelines.sinks.parquet import Parquet as Parquet
    from tidings.pipelines.sinks.postgres import Postgres as Postgres
    from tidings.pipelines.sinks.rabbitmq import RabbitMQ as RabbitMQ
    from tidings.pipelines.sinks.redis import Redis as Redis
    from tidings.pipelines.sinks.search import Search as Search
    from tidings.pipelines.sources.files import Files as Files
    from tidings.pipelines.sources.frame import Frame as Frame
    from tidings.pipelines.sources.kafka import KafkaTopics as KafkaTopics
    from tidings.pipelines.sources.mongodb import MongoCollection as MongoCollection
    from tidings.pipelines.sources.mysql import MySQLTable as MySQLTable
    from tidings.pipelines.sources.postgres import PostgresTable as PostgresTable
    from tidings.pipelines.sources.rabbitmq import RabbitMQQueue as RabbitMQQueue
    from tidings.pipelines.sources.sqs import SqsQueue as SqsQueue
    from tidings.pipelines.steps import omit as omit
    from tidings.pipelines.steps import opfilter as opfilter
    from tidings.pipelines.steps import pick as pick
    from tidings.pipelines.steps import pretty as pretty
    from tidings.pipelines.steps import remap as remap
    from tidings.pipelines.steps import rename as rename
    from tidings.pipelines.steps import skip as skip

    Table = PostgresTable
    Elasticsearch = Search
    OpenSearch = Search

_MODULES = {
    "Call": "sinks.call",
    "Feed": "sinks.feed",
    "Files": "sources.files",
    "Frame": "sources.frame",
    "Kafka": "sinks.kafka",
    "KafkaTopics": "sources.kafka",
    "Message": "message",
    "MongoCollection": "sources.mongodb",
    "MongoDB": "sinks.mongodb",
    "MySQL": "sinks.mysql",
    "MySQLTable": "sources.mysql",
    "Ndjson": "sinks.ndjson",
    "Parquet": "sinks.parquet",
    "Pipeline": "pipeline",
    "Postgres": "sinks.postgres",
    "PostgresTable": "sources.postgres",
    "RabbitMQ": "sinks.rabbitmq",
    "RabbitMQQueue": "sources.rabbitmq",
    "Redis": "sinks.redis",
    "Search": "sinks.search",
    "Source": "pipeline",
    "SqsQueue": "sources.sqs",
    **dict.fromkeys(("EventBridge", "Kinesis", "Sns", "Sqs"), "sinks.aws"),
    **dict.fromkeys(("omit", "opfilter", "pick", "pretty", "remap", "rename", "skip"), "steps"),
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
