"""The descriptions of the routes, from which `openapi` builds its document.

A route in `routes` needs an entry in `DOCS`. Its schemas are in `schemas`.
"""

from __future__ import annotations

from tidings.core import errors, limits
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.feeds import NAME
from tidings.core.model.json_body import NDJSON_TYPE
from tidings.http.endpoints.erasures import InvalidErasure, UnknownErasure
from tidings.http.routes import DECLARED
from tidings.http.schemas import (
    EXAMPLE_CURSOR,
    EXAMPLE_FEED,
    Schema,
    ref,
)
from tidings.http.wire import Doc

JSON, NDJSON = "application/json", NDJSON_TYPE
HTML = "text/html"
_INTEGER = {"type": "integer", "format": "int64", "minimum": 0}
_ID = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
_PLAIN = {"type": "string"}
_SWITCH = {"type": "string", "enum": ["true", "false"]}
_OPTIONAL = {"allowEmptyValue": True}  # an empty value is one that was not given
_KEYED = ("Idempotency-Key",)

# The tags, by chapter of docs/PROTOCOL.md. A longer number is a rule with a tag of its own.
TAGS = {
    "4": "Operations",
    "7": "Operations",
    "9": "Status",
    "6": "Status",
    "10": "Keys",
    "12": "Changes",
    "13": "Listeners",
    "13.9": "State",
    "14": "Consumers",
    "16": "Chained feeds",
    "17": "Keys",
    "18": "Corrections",
    "19": "Webhooks",
    "20": "State",
    "22": "Erasures",
    "23": "Feeds",
}
TAG_SUMMARIES = {
    "Operations": "post operations, follow a feed",
    "Status": "the status of a feed and of its host, descriptions of its formats",
    "State": "the latest operation of each object, and checksums of them",
    "Consumers": "named consumers, whose positions the feed stores",
    "Webhooks": "endpoints that receive events",
    "Keys": "credentials of a feed",
    "Feeds": "create, change and delete feeds",
    "Erasures": "remove the data of an object",
    "Corrections": "make a feed agree with other data",
    "Chained feeds": "copies of another feed",
    "Changes": "the API of changeagent",
    "Listeners": "the API of Triton's change feed",
}


def _lines(of: Schema, example: str) -> Schema:
    """Return the schema of text whose lines are JSON values."""
    return {
        "type": "string",
        "contentMediaType": NDJSON,
        "contentSchema": of,
        "examples": [example],
    }


def _json(name: str) -> tuple[tuple[str, Schema], ...]:
    return ((JSON, ref(name)),)


REQUIRED = {"confirm", "through"}


# The parameters by name: their schemas, with the keys `description` and `allowEmptyValue` of
# parameters. The part after a colon distinguishes parameters of the same name.
PARAMETERS: dict[str, Schema] = {
    "limit:feeds": {
        "type": "integer",
        "minimum": 1,
        "maximum": limits.FEEDS_LISTED,
        "description": "the maximum number of feeds",
    },
    "through": {**_INTEGER, "description": "the page up to which the state was complete"},
    "after:feeds": {**_PLAIN, "description": "the `next` of the previous list"},
    "after:erasures": {
        **_ID,
        **_OPTIONAL,
        "examples": [EXAMPLE_CURSOR],
        "description": "the `next` of the previous list",
    },
    "confirm": {**_PLAIN, "description": "the name of the feed again", "examples": [EXAMPLE_FEED]},
    "force": {**_SWITCH, "description": "delete a feed that is in use"},
    "tables": {**_SWITCH, "description": "also delete its Iceberg tables"},
    "deleted": {**_SWITCH, "description": "also list deleted feeds"},
    "Last-Event-ID": {
        **_PLAIN,
        "description": "the cursor (5): the id of the last event handled, `0` or `now`",
        "examples": [EXAMPLE_CURSOR, "0", "now"],
    },
    "If-None-Match": {
        **_PLAIN,
        "description": "`*` changes nothing that exists; other values have no effect",
        "examples": ["*"],
    },
    "Idempotency-Key": {
        "type": "string",
        "pattern": f"^[ -~]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}$",
        "description": "append a repeated request once, for 24 hours (4.5)",
        "examples": ["3f1c9c2e-6a3f-4f0e-9d0b-2f6f6a1f7c55"],
    },
    "traceparent": {
        **_PLAIN,
        "description": "W3C Trace Context (4.10)",
        "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    },
    "Prefer": {
        **_PLAIN,
        "description": "`return=representation` returns the ids; other values have no effect",
        "examples": ["return=representation"],
    },
}

_CHAINED = (errors.Chained, errors.Yielded)

# The descriptions by method and path, without the part of the path that names a feed.
DOCS: dict[str, Doc] = {
    "POST /corrections": Doc(
        "apply corrections of a sync",
        "18",
        "applyCorrections",
        query=("through",),
        body=((NDJSON, _lines(ref("Operation"), "")),),
        answers=_json("CorrectionReport"),
        errors=(errors.InvalidSync, errors.InvalidOperation, errors.PlanTooOld, *_CHAINED),
    ),
    "POST /corrections/rows": Doc(
        "rows of some objects",
        "18.7",
        "lookUpRows",
        body=_json("ObjectKeys"),
        answers=_json("ObjectRows"),
        errors=(errors.InvalidSync, errors.InvalidOperation),
    ),
    "POST /erasures": Doc(
        "erase an object",
        "22.1",
        "eraseObject",
        headers=_KEYED,
        body=_json("ErasureRequest"),
        status=202,
        answers=_json("ErasureReport"),
        errors=(InvalidErasure, errors.InvalidKey, errors.KeyReused, *_CHAINED),
    ),
    "GET /erasures": Doc(
        "all erasures",
        "22.5",
        "listErasures",
        query=("after:erasures",),
        answers=_json("Erasures"),
        errors=(InvalidErasure,),
    ),
    "GET /erasures/{id}": Doc(
        "the report of an erasure",
        "22.5",
        "getErasure",
        answers=_json("ErasureReport"),
        errors=(UnknownErasure,),
    ),
    "GET /feeds": Doc(
        "all feeds of the host",
        "23.5",
        "listFeeds",
        query=("after:feeds", "limit:feeds", "deleted"),
        answers=_json("Feeds"),
        errors=(errors.InvalidFeed,),
    ),
    "PUT /feeds/{feed}": Doc(
        "create a feed, or change its settings",
        "23.1",
        "putFeed",
        headers=("If-None-Match",),
        body=_json("FeedSettings"),
        optional=True,
        status=201,
        more=(200,),
        answers=_json("FeedRecord"),
        errors=(errors.InvalidSetting, errors.FeedExists),
    ),
    "GET /feeds/{feed}": Doc(
        "the record of a feed", "23.4", "getFeed", answers=_json("FeedRecord")
    ),
    "DELETE /feeds/{feed}": Doc(
        "delete a feed with all its data",
        "23.6",
        "deleteFeed",
        query=("confirm", "force", "tables"),
        status=202,
        more=(200,),
        answers=_json("FeedRecord"),
        errors=(errors.FeedInUse,),
    ),
}

DOCS |= {
    key.replace(" /feeds/{feed}/", " /"): each.doc
    for kind in DECLARED
    for key, each in kind.declared.items()
}

# The parameters in paths, by name.
PATH_PARAMETERS: dict[str, Schema] = {
    "feed": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "the name of a feed",
    },
    "name": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "the name of a consumer or webhook",
        "examples": ["search"],
    },
    "id": {**_PLAIN, "minLength": 1, "description": "the id of a key, an erasure, a change"},
    "format": {"type": "string", "enum": [*FORMATS], "description": "the format of events (6.10)"},
    "part": {"type": "string", "enum": ["id", "stack", "raft", "memory", "cpu"]},
    "part:raft": {"type": "string", "enum": ["state", "leader"]},
}
