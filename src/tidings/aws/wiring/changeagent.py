"""
The composition of what serves changes: users, lists, webhooks, the index, what operators ask.

As `adapters`, on which it stands: built once per process, when it is first asked for.
"""

from __future__ import annotations

import os
from functools import cache, partial
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters, auth, chained, ingest

if TYPE_CHECKING:
    from tidings.aws.dynamodb.documents import DynamoDBOperatorDocuments
    from tidings.aws.dynamodb.tags import DynamoDBTags
    from tidings.core.changeagent.list import Lister
    from tidings.core.changeagent.recent_documents import RecentDocuments
    from tidings.core.changeagent.tag_indexer import Indexer, IndexMonitor
    from tidings.core.changeagent.users import Gate
    from tidings.http.endpoints.admin import Administration
    from tidings.http.endpoints.changes import Changes


@cache
def stored_documents() -> DynamoDBOperatorDocuments:
    from tidings.aws.dynamodb.documents import DynamoDBOperatorDocuments

    return DynamoDBOperatorDocuments(clients.dynamodb(), adapters.settings().control_table)


@cache
def operator_documents() -> RecentDocuments:
    from tidings.core.changeagent.recent_documents import RecentDocuments

    return RecentDocuments(stored_documents(), now_ms)


@cache
def gate() -> Gate:
    from tidings.core import limits
    from tidings.core.auth.guard import FailedAttemptLimiter
    from tidings.core.changeagent.users import Gate, UserVerifier
    from tidings.http.outbound.bcrypt import matches

    verifier = UserVerifier(matches, os.urandom(adapters.KEY_BYTES))
    return Gate(
        operator_documents(),
        auth.guard(),
        verifier,
        FailedAttemptLimiter(now_ms, limits.USER_MISSES_MAX),
    )


@cache
def tags() -> DynamoDBTags:
    from tidings.aws.dynamodb.tags import DynamoDBTags

    return DynamoDBTags(clients.dynamodb_once(), adapters.settings().state_table)


@cache
def changes() -> Changes:
    from tidings.core.changeagent.submit import Proposer
    from tidings.http.endpoints.changes import Changes
    from tidings.http.outbound.webhooks import Webhooks

    proposer = Proposer(
        ingest.appender(),
        gate(),
        stored_documents(),
        Webhooks(private=adapters.settings().hooks_private),
        adapters.settings().feeds,
        adapters.count,
        adapters.tallies(),
        adapters.tracer(),
    )
    return Changes(proposer)


@cache
def lister() -> Lister:
    from tidings.core.changeagent.list import Lister

    return Lister(adapters.reader(), tags(), chained.losses(), chained.copies())


@cache
def indexer() -> Indexer:
    from tidings.core.changeagent.tag_indexer import Indexer

    return Indexer(tags(), adapters.reader(), adapters.settings().page_ms)


@cache
def index_monitor() -> IndexMonitor:
    from tidings.core.changeagent.tag_indexer import IndexMonitor

    return IndexMonitor(tags(), partial(adapters.waker().run, "index"), now_ms)


@cache
def administration() -> Administration:
    """It reads documents uncached and without retries: health is told while a store is away."""
    from tidings.aws.dynamodb.documents import DynamoDBOperatorDocuments
    from tidings.core.changeagent.admin import Administrator
    from tidings.http.endpoints.admin import Administration

    operator_documents = DynamoDBOperatorDocuments(
        clients.dynamodb_once(), adapters.settings().control_table
    )
    administrator = Administrator(operator_documents, gate(), adapters.settings().feeds)
    where = {"stage": adapters.settings().stage, "prefix": adapters.settings().url_prefix}
    return Administration(administrator, lister(), **where)
