"""The routes of the state of a feed (PROTOCOL 13.9 and 20), and those of listeners (13.3)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from tidings.core import limits
from tidings.core.auth.guard import PUBLIC, READ, READ_ALL, REPLICATE
from tidings.core.errors import InvalidCursor, InvalidFilter
from tidings.core.model import filters
from tidings.core.state.sums import PageSums, of_types
from tidings.http import wire
from tidings.http.request import Answer
from tidings.http.wire import EXAMPLE_OBJECT, JSON, Call, Example, FeedObject, Fields, Given, Kind

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.settings.values import Resource
    from tidings.core.state.sums import SumReader
    from tidings.core.triton.objects import ObjectReader
    from tidings.core.triton.registration import Registered, Registry

_CHANGEFEEDS = "/changefeeds", "/feeds/{feed}/changefeeds"
_SUM = {"type": ["string", "null"], "pattern": "^[0-9a-f]{16}$"}


class ObjectQuery(Given, is_open=True):
    type: Annotated[str, "the type of the objects"] = ""
    id: Annotated[str, "the id of one object; it needs `type`"] | None = None
    after: Annotated[str, "the `next` of the previous page"] = ""


class SumQuery(Given, is_open=True):
    types: Annotated[str, "values separated by commas, or a JSON array of strings"] | None = None


class DeclaredResource(Fields, name="Resource"):
    resource: Annotated[str, Example("vm")]
    subResources: Annotated[list[str], Example(["nic"])]
    bootstrapRoute: Annotated[str, Example("/vms")]

    @classmethod
    def of(cls, declared: Resource) -> Self:
        return cls(
            resource=declared.name, subResources=[*declared.subs], bootstrapRoute=declared.route
        )


class ResourceList(Fields, name="Resources"):
    resources: list[DeclaredResource]


class ItemKind(Fields, name=""):
    resource: Annotated[str, wire.text_of(limits.TYPE_BYTES_MAX), Example("vm")]
    subResources: Annotated[
        list[Annotated[str, wire.text_of(limits.PARENT_BYTES_MAX)]],
        wire.most(limits.TAGS_MAX),
        Example(["nic"]),
    ]


class Registration(Fields, name=""):
    instance: Annotated[str, Example("i-1")]
    service: Annotated[Any, Example("dns")]
    changeKind: ItemKind

    @classmethod
    def of(cls, registered: Registered) -> Self:
        kind, service = registered.kind, registered.service
        return cls(
            instance=registered.instance,
            service=json.loads(service) if service else None,
            changeKind=ItemKind(resource=kind.resource, subResources=[*kind.subs]),
        )


class ListenerStats(Fields):
    """The registrations: one for each resource of a listener, which is counted once."""

    listeners: Annotated[int, Example(1)]
    registrations: list[Registration]


class ObjectList(Fields):
    objects: Annotated[list[FeedObject], Example([EXAMPLE_OBJECT])]
    next: str | None


class Sums(Fields):
    page: Annotated[int, Example(42)]
    sums: Annotated[
        list[str | None],
        Kind(
            {"type": "array", "items": _SUM, "minItems": limits.BUCKETS, "maxItems": limits.BUCKETS}
        ),
        Example(["d0e5e1accc0c818a", *["0000000000000000"] * (limits.BUCKETS - 1)]),
    ]


@dataclass(frozen=True)
class FeedBrowser(wire.Routes, function="browse", error=InvalidFilter):
    """The endpoint of the state of a feed, and of its resources and listeners."""

    guard: Guard
    registry: Registry
    objects: ObjectReader
    sums: SumReader

    @wire.get(_CHANGEFEEDS, PUBLIC, "13.3")
    def list_resources(self, call: Call) -> ResourceList:
        """Return the resources that listeners can register for.

        They are not secret, so no password is needed.
        """
        declared = self.guard.profiles.profile(call.feed).resources
        return ResourceList(resources=[*map(DeclaredResource.of, declared)])

    @wire.get([f"{path}/stats" for path in _CHANGEFEEDS], READ_ALL, "13.3")
    def get_listener_stats(self, call: Call) -> ListenerStats:
        """Return the registered listeners."""
        found = self.registry.registered(call.feed)
        return ListenerStats(
            listeners=len({each.connection_id for each in found}),
            registrations=[*map(Registration.of, found)],
        )

    @wire.get(
        "/feeds/{feed}/objects",
        READ,
        "13.9",
        answers=wire.json_of(ObjectList),
        errors=(InvalidCursor, InvalidFilter),
    )
    def list_objects(self, call: Call, query: ObjectQuery) -> Answer:
        """Return the latest operation of each object."""
        if query.id is None:
            page = self.objects.page(call.feed, query.type, query.after, call.allowed)
        else:
            page = self.objects.one(call.feed, query.type, query.id, call.allowed)
        # The objects are copied unchanged.
        text = f'{{"objects":[{",".join(page.objects)}],"next":{json.dumps(page.after)}}}'
        return Answer(200, {"content-type": JSON}, text)

    @wire.get("/feeds/{feed}/sums", REPLICATE, "20.3", errors=(InvalidFilter,))
    def get_sums(self, call: Call, query: SumQuery) -> Sums:
        """Return the sums of the state, by bucket."""
        wanted = call.allowed.narrow(filters.from_query({"types": query.types}))
        found = self.sums.read(call.feed)
        return Sums(**PageSums(found.page, of_types(found, wanted.types)).to_json())
