"""
profile: what the owner of a feed has set.

Key: `profile#<feed>`, `-`. What is not set is left out; without the item nothing is. The
passwords are hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.profiles import Profile
from tidings.core.resources import Resource

from .attributes import Item, Value, number, number_of, text, text_of, without_empty

if TYPE_CHECKING:
    from collections.abc import Mapping


def key(feed: str) -> Item:
    return {"kind": text(f"profile#{feed}"), "name": text("-")}


def encode(feed: str, profile: Profile) -> Item:
    return {
        **key(feed),
        **without_empty({"object_url": profile.object_url, "compat": profile.compat}),
        **({"leave": {"BOOL": True}} if profile.leave else {}),
        **_texts("read", profile.read_passwords),
        **_texts("ingest", profile.ingest_passwords),
        **_resources(profile),
        "version": number(profile.version),
    }


def decode(item: Mapping[str, Any]) -> Profile:
    """The defaults where there is no item."""
    return Profile(
        object_url=text_of(item, "object_url"),
        compat=text_of(item, "compat"),
        leave="leave" in item,
        read_passwords=_texts_of(item, "read"),
        ingest_passwords=_texts_of(item, "ingest"),
        version=number_of(item, "version"),
        resources=tuple(_resource_of(value) for value in item.get("resources", {"L": []})["L"]),
        max_age_s=number_of(item, "max_age"),
    )


def _resources(profile: Profile) -> Item:
    found: Item = {"max_age": number(profile.max_age_s)} if profile.max_age_s else {}
    if profile.resources:
        found["resources"] = {"L": [_resource(resource) for resource in profile.resources]}
    return found


def _resource(resource: Resource) -> Value:
    subs = {"L": [text(sub) for sub in resource.subs]}
    return {"M": {"name": text(resource.name), "subs": subs, "route": text(resource.route)}}


def _resource_of(value: Value) -> Resource:
    fields = value["M"]
    subs = tuple(sub["S"] for sub in fields["subs"]["L"])
    return Resource(text_of(fields, "name"), subs, text_of(fields, "route"))


def _texts(name: str, values: tuple[str, ...]) -> Item:
    return {name: {"L": [text(value) for value in values]}} if values else {}


def _texts_of(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = item.get(name)
    return tuple(value["S"] for value in found["L"]) if found else ()
