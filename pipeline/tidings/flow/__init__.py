"""
Pipelines: a feed, functions on its messages, and stores that each keep their own position.

Each name is imported when it is first used, so that a store that is not used need not be there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import Message as Message
    from .pipeline import Pipeline as Pipeline
    from .pipeline import Source as Source
    from .readers.files import Files as Files
    from .readers.frame import Frame as Frame
    from .readers.table import Table as Table
    from .sinks.call import Call as Call
    from .sinks.feed import Feed as Feed
    from .sinks.ndjson import Ndjson as Ndjson
    from .sinks.parquet import Parquet as Parquet
    from .sinks.postgres import Postgres as Postgres
    from .sinks.search import Search as Search
    from .steps import omit as omit
    from .steps import opfilter as opfilter
    from .steps import pick as pick
    from .steps import pretty as pretty
    from .steps import remap as remap
    from .steps import rename as rename
    from .steps import skip as skip

_MODULES = {
    "Call": "sinks.call",
    "Feed": "sinks.feed",
    "Files": "readers.files",
    "Frame": "readers.frame",
    "Message": "message",
    "Ndjson": "sinks.ndjson",
    "Parquet": "sinks.parquet",
    "Pipeline": "pipeline",
    "Postgres": "sinks.postgres",
    "Search": "sinks.search",
    "Source": "pipeline",
    "Table": "readers.table",
    **dict.fromkeys(("omit", "opfilter", "pick", "pretty", "remap", "rename", "skip"), "steps"),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
