"""What `tidings pipeline init` writes and `about` shows: a source, and each kind of store."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    description: str
    name: str
    text: str


SINKS = {
    "postgres": Sample(
        "a table of PostgreSQL, a row an object",
        "Postgres",
        'Postgres("postgresql:///videos", table="objects")',
    ),
    "parquet": Sample("Parquet files, a file a batch", "Parquet", 'Parquet("objects")'),
    "ndjson": Sample("lines of JSON in a file", "Ndjson", 'Ndjson("objects.json")'),
    "feed": Sample(
        "another feed", "Feed", 'Feed("https://feed.example", feed="main", password="...")'
    ),
    "call": Sample("a function of yours, called with each batch", "Call", "Call(print)"),
}

_FILE = '''"""A pipeline: `tidings pipeline test` shows it, `tidings pipeline run` runs it."""

from tidings.flow import {names}

source = Source("{url}", feed="{feed}")


def transform(message):
    """Change op, namespace, ts or data; None leaves the message out."""
    return message


pipeline = Pipeline("{name}", source)
{saves}
'''


def written(name: str, url: str, feed: str, sinks: tuple[str, ...]) -> str:
    """A file with one store of each of *sinks*."""
    names = ", ".join(sorted({"Pipeline", "Source", *(SINKS[each].name for each in sinks)}))
    saves = "\n".join(f'pipeline.save("{each}", {SINKS[each].text}, transform)' for each in sinks)
    return _FILE.format(names=names, url=url, feed=feed, name=name, saves=saves)
