"""
A listener as an attribute of its connection: JSON in ASCII; none for other clients.
"""

from __future__ import annotations

import json

from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.core.triton.registration import Kind, Listener

_NAME = "listener"


def encode(listener: Listener | None) -> Item:
    if listener is None:
        return {}
    fields = {
        "version": listener.version,
        "feed": listener.feed,
        "instance": listener.instance,
        "service": listener.service,
        "kinds": [[kind.resource, *kind.subs] for kind in listener.kinds],
    }
    return {_NAME: text(json.dumps(fields, separators=(",", ":")))}


def decode(item: Item) -> Listener | None:
    if _NAME not in item:
        return None
    fields = json.loads(item[_NAME]["S"])
    kinds = tuple(Kind(resource, tuple(subs)) for resource, *subs in fields.pop("kinds"))
    return Listener(**fields, kinds=kinds)
