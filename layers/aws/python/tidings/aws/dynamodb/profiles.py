"""
What the owners of feeds have set, on DynamoDB in the control table.

Key: `profile#<feed>`, `-`. What is not set is left out; without the item nothing is. The
passwords are hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import (
    Item,
    Value,
    number,
    number_of,
    text,
    text_of,
    texts,
    texts_of,
    without_empty,
)
from tidings.aws.dynamodb.transport.table import Table
from tidings.core.settings.feed import Profile, saved
from tidings.core.settings.resources import Resource
from tidings.core.settings.revocations import Ended

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def item_key(feed: str) -> Item:
    return {"kind": text(f"profile#{feed}"), "name": text("-")}


def encode(feed: str, profile: Profile) -> Item:
    return {
        **item_key(feed),
        **without_empty({"object_url": profile.object_url, "compat": profile.compat}),
        **({"leave": {"BOOL": True}} if profile.leave else {}),
        **({"read": texts(profile.read_passwords)} if profile.read_passwords else {}),
        **({"ingest": texts(profile.ingest_passwords)} if profile.ingest_passwords else {}),
        **_resources(profile),
        **_ended(profile),
        **({"lost": texts([_range(each) for each in profile.lost])} if profile.lost else {}),
        "version": number(profile.version),
    }


def decode(item: Item) -> Profile:
    """The defaults where there is no item."""
    return Profile(
        object_url=text_of(item, "object_url"),
        compat=text_of(item, "compat"),
        leave="leave" in item,
        read_passwords=texts_of(item, "read") or (),
        ingest_passwords=texts_of(item, "ingest") or (),
        version=number_of(item, "version"),
        resources=tuple(_resource_of(value) for value in item.get("resources", {"L": []})["L"]),
        max_age_s=number_of(item, "max_age"),
        ended=tuple(_ended_of(each) for each in texts_of(item, "ended") or ()),
        lost=tuple(_range_of(each) for each in texts_of(item, "lost") or ()),
    )


def _resources(profile: Profile) -> Item:
    attributes: Item = {"max_age": number(profile.max_age_s)} if profile.max_age_s else {}
    if profile.resources:
        attributes["resources"] = {"L": [_resource(resource) for resource in profile.resources]}
    return attributes


def _resource(resource: Resource) -> Value:
    return {
        "M": {
            "name": text(resource.name),
            "subs": texts(resource.subs),
            "route": text(resource.route),
        }
    }


def _resource_of(value: Value) -> Resource:
    fields = value["M"]
    return Resource(
        text_of(fields, "name"), texts_of(fields, "subs") or (), text_of(fields, "route")
    )


def _ended(profile: Profile) -> Item:
    """A text each: half the bytes of a map, and there may be a thousand."""
    spelled = [f"{each.key} {each.noted_ms} {each.from_ms}" for each in profile.ended]
    return {"ended": texts(spelled)} if spelled else {}


def _ended_of(spelled: str) -> Ended:
    key, noted_ms, from_ms = spelled.split()
    return Ended(key, int(noted_ms), int(from_ms))


def _range(lost: tuple[int, int]) -> str:
    return f"{lost[0]}-{lost[1]}"


def _range_of(spelled: str) -> tuple[int, int]:
    first, last = spelled.split("-")
    return int(first), int(last)


class DynamoDBProfiles:
    """Implements `Profiles`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def profile(self, feed: str) -> Profile:
        return decode(self._table.get(item_key(feed)) or {})

    def save(self, feed: str, profile: Profile) -> bool:
        item = encode(feed, saved(profile))
        return self._table.put_over(item, profile.version, may_be_new=profile.version == 0)
