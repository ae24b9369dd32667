"""The composition root's part for what is written to the log."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, chained

if TYPE_CHECKING:
    from tidings.core.ingest.ingest import Ingester
    from tidings.core.log.append import Appender
    from tidings.core.log.reader import Filler
    from tidings.http.endpoints.posting import Operations


@cache
def appender() -> Appender:
    from tidings.aws.dynamodb.claims import DynamoDBClaims
    from tidings.core.log.append import Appender

    claims = DynamoDBClaims(clients.dynamodb(), adapters.settings().control_table)
    return Appender(
        adapters.log(),
        claims,
        now_ms,
        adapters.new_id,
        adapters.settings().page_ms,
        chained.writable().check,
    )


@cache
def ingester() -> Ingester:
    from tidings.aws.wiring.auth import required
    from tidings.core.ingest.ingest import Ingester

    return Ingester(
        appender(),
        now_ms,
        adapters.count,
        adapters.settings().feeds,
        adapters.tallies(),
        auth.guard(),
        required,
        tracer=adapters.tracer(),
    )


@cache
def operations() -> Operations:
    from tidings.http.endpoints.posting import Operations

    return Operations(ingester(), adapters.compatibility(), adapters.settings().url_prefix)


@cache
def filler() -> Filler:
    from tidings.core.log.reader import Filler

    return Filler(adapters.reader(), adapters.settings().page_ms, chained.copies())
