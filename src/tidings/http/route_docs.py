"""The descriptions of the routes, from which `openapi` builds its document.

Most of a description is in the declaration of the route; tags and parameters in paths and headers
are here.
"""

from __future__ import annotations

from tidings.core import limits
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.feeds import NAME
from tidings.http.routes import DECLARED
from tidings.http.schemas import (
    EXAMPLE_CURSOR,
    Schema,
)
from tidings.http.wire import Doc

JSON = "application/json"
HTML = "text/html"
_PLAIN = {"type": "string"}

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


# The parameters by name: their schemas, with the keys `description` and `allowEmptyValue` of
# parameters. The part after a colon distinguishes parameters of the same name.
PARAMETERS: dict[str, Schema] = {
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


# The descriptions by method and path, without the part of the path that names a feed.
DOCS: dict[str, Doc] = {
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
