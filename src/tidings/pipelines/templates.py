"""The samples of sources and stores that `tidings pipeline init` writes and `about` shows."""

from __future__ import annotations

from typing import NamedTuple

from tidings.core.version import how_to_install


class Sample(NamedTuple):
    """An example of a source or store.

    *name* is the name of the class, and *extra* the extra of the package `tidings` that the class
    needs.
    """

    description: str
    name: str
    text: str
    extra: str = ""


SINKS = {
    "postgres": Sample(
        "a table of PostgreSQL, with a row for each object",
        "Postgres",
        'Postgres("postgresql:///videos", table="objects")',
        "flow",
    ),
    "search": Sample(
        "an index of OpenSearch or Elasticsearch, with a document for each object",
        "Search",
        'Search("https://search.example:9200", index="objects")',
        "flow",
    ),
    "parquet": Sample(
        "Parquet files in a folder or on S3, with a file for each batch",
        "Parquet",
        'Parquet("objects")',
        "flow",
    ),
    "ndjson": Sample("lines of JSON in a file", "Ndjson", 'Ndjson("objects.json")'),
    "feed": Sample(
        "another feed", "Feed", 'Feed("https://feed.example", feed="main", password="...")'
    ),
    "mysql": Sample(
        "a table of MySQL or MariaDB, with a row for each object",
        "MySQL",
        'MySQL("mysql://me:secret@localhost/videos", table="objects")',
        "flow-mysql",
    ),
    "mongodb": Sample(
        "a collection of MongoDB, with a document for each object",
        "MongoDB",
        'MongoDB("mongodb://me:secret@localhost/videos", collection="objects")',
        "flow-mongodb",
    ),
    "redis": Sample(
        "a hash of Redis or Valkey, with a field for each object",
        "Redis",
        'Redis("redis://localhost:6379/0", key="objects")',
        "flow-redis",
    ),
    "rabbitmq": Sample(
        "an exchange or a queue of RabbitMQ, which confirms each message",
        "RabbitMQ",
        'RabbitMQ("amqp://me:secret@localhost/", key="objects")',
        "flow-rabbitmq",
    ),
    "kafka": Sample(
        "topics of Kafka, with the object as the key of a message",
        "Kafka",
        'Kafka("localhost:9092", topic="objects")',
        "flow-kafka",
    ),
    "sqs": Sample(
        "a queue of SQS, FIFO or standard",
        "Sqs",
        'Sqs("https://sqs.eu-west-1.amazonaws.com/123456789012/objects.fifo")',
        "flow-aws",
    ),
    "sns": Sample(
        "a topic of SNS, FIFO or standard",
        "Sns",
        'Sns("arn:aws:sns:eu-west-1:123456789012:objects.fifo")',
        "flow-aws",
    ),
    "eventbridge": Sample(
        "an event bus of EventBridge", "EventBridge", 'EventBridge("default")', "flow-aws"
    ),
    "kinesis": Sample(
        "a data stream of Kinesis, with the object as the partition key",
        "Kinesis",
        'Kinesis("objects")',
        "flow-aws",
    ),
    "call": Sample("your function, which is called with each batch", "Call", "Call(print)"),
}

SOURCES = {
    "files": Sample("files of JSON lines, which may grow", "Files", 'Files("in/*.json")'),
    "postgrestable": Sample(
        "a table of PostgreSQL, copied and then followed",
        "PostgresTable",
        'PostgresTable("postgresql:///app", "videos", type="video")',
        "flow",
    ),
    "mysqltable": Sample(
        "a table of MySQL or MariaDB, copied and then followed",
        "MySQLTable",
        'MySQLTable("mysql://me:secret@localhost/app", "videos", type="video")',
        "flow-mysql",
    ),
    "mongocollection": Sample(
        "a collection of MongoDB, copied and then followed",
        "MongoCollection",
        'MongoCollection("mongodb://me:secret@localhost/app", "videos", type="video")',
        "flow-mongodb",
    ),
    "kafkatopics": Sample(
        "topics of Kafka, including those of Debezium",
        "KafkaTopics",
        'KafkaTopics("localhost:9092", "app.public.videos", envelope="debezium", type="video")',
        "flow-kafka",
    ),
    "rabbitmqqueue": Sample(
        "a queue of RabbitMQ; messages are acknowledged when the feed has them",
        "RabbitMQQueue",
        'RabbitMQQueue("amqp://me:secret@localhost/", "videos", type="video")',
        "flow-rabbitmq",
    ),
    "sqsqueue": Sample(
        "a queue of SQS, FIFO or standard; messages are deleted when the feed has them",
        "SqsQueue",
        'SqsQueue("https://sqs.eu-west-1.amazonaws.com/123456789012/in.fifo", type="video")',
        "flow-aws",
    ),
    "frame": Sample(
        "a DataFrame of Spark, which is read once",
        "Frame",
        'Frame(lambda spark: spark.read.parquet("videos"), "video", key="id")',
        "pipeline",
    ),
}

# Other names of the samples: names of products, and names in earlier releases.
SINK_NAMES = {
    "postgresql": "postgres",
    "mariadb": "mysql",
    "mongo": "mongodb",
    "elasticsearch": "search",
    "opensearch": "search",
    "valkey": "redis",
    "json": "ndjson",
}
SOURCE_NAMES = {
    "table": "postgrestable",
    "postgres": "postgrestable",
    "postgresql": "postgrestable",
    "mysql": "mysqltable",
    "mariadb": "mysqltable",
    "mongodb": "mongocollection",
    "mongo": "mongocollection",
    "kafka": "kafkatopics",
    "debezium": "kafkatopics",
    "rabbitmq": "rabbitmqqueue",
    "sqs": "sqsqueue",
    "ndjson": "files",
    "json": "files",
    "spark": "frame",
}

_FILE = '''"""A pipeline: `tidings pipeline test` shows it, `tidings pipeline run` runs it."""

from tidings.pipelines import {names}

source = Source("{url}", feed="{feed}")


def transform(message):
    """Change op, namespace, ts or data. Return None to leave the message out."""
    return message


pipeline = Pipeline("{name}", source)
{lines}
'''


def needs(name: str) -> str:
    """Return the end of an error message: what to install for the source or store *name*."""
    for sample in (*SOURCES.values(), *SINKS.values()):
        if sample.name == name and sample.extra:
            return f"; for {name}, {how_to_install(sample.extra)}"
    return ""


def render_file(
    name: str, url: str, feed: str, sources: tuple[str, ...], sinks: tuple[str, ...]
) -> str:
    """Return a file with a reader for each of *sources*, and a store for each of *sinks*."""
    used = [SOURCES[each].name for each in sources] + [SINKS[each].name for each in sinks]
    names = ", ".join(sorted({"Pipeline", "Source", *used}))
    reads = [f'pipeline.read("{each}", {SOURCES[each].text})' for each in sources]
    saves = [f'pipeline.save("{each}", {SINKS[each].text}, transform)' for each in sinks]
    lines = "\n".join(reads + saves)
    return _FILE.format(names=names, url=url, feed=feed, name=name, lines=lines)
