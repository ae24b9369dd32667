"""A receiver of OpenLineage events, which takes what OpenLineage's own classes take."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from openlineage.client import event_v2, facet_v2
from openlineage.client.facet_v2 import BaseFacet, schema_dataset

from tests.contract.answering import HttpServer, ReceivedRequest, Reply

assert facet_v2  # importing it has all facets be known
_FACETS = ("facets", "inputFacets", "outputFacets")


@dataclass
class Receiver:
    """*bodies* are the events as they came, *paths* and *keys* what they were sent to and with."""

    url: str
    bodies: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return all events, each checked."""
        events = [json.loads(body) for body in self.bodies]
        for event in events:
            checked(event)
        return events

    @property
    def states(self) -> list[str]:
        return [each["eventType"] for each in self.events]


@contextmanager
def receiving(status: int = HTTPStatus.CREATED) -> Iterator[Receiver]:
    """Run a receiver that answers each event with *status*."""

    def respond(request: ReceivedRequest) -> Reply:
        receiver.bodies.append(request.body.decode())
        receiver.paths.append(request.path)
        receiver.keys.append(request.headers.get("Authorization"))
        return Reply(status=status)

    with HttpServer(respond) as server:
        receiver = Receiver(server.url)
        yield receiver


def checked(event: Mapping[str, Any]) -> event_v2.RunEvent:
    """Return *event* in the classes of the client.

    Raises:
        TypeError, ValueError, KeyError: it lacks a field, or has an unknown one.
    """
    fields = dict(event)
    assert fields.pop("schemaURL") == event_v2.RunEvent._get_schema()
    fields["eventType"] = event_v2.RunState(fields["eventType"])
    fields["run"] = event_v2.Run(**_with_facets(fields["run"]))
    fields["job"] = event_v2.Job(**_with_facets(fields["job"]))
    fields["inputs"] = [event_v2.InputDataset(**_with_facets(each)) for each in fields["inputs"]]
    fields["outputs"] = [event_v2.OutputDataset(**_with_facets(each)) for each in fields["outputs"]]
    return event_v2.RunEvent(**fields)


def _with_facets(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: _facet(each) for key, each in value.items()} if name in _FACETS else value
        for name, value in part.items()
    }


def _facet(facet: Mapping[str, Any]) -> BaseFacet:
    kinds = {kind._get_schema(): kind for kind in _below(BaseFacet)}
    fields = {name.lstrip("_"): value for name, value in facet.items() if name != "_schemaURL"}
    made = kinds[facet["_schemaURL"]](**fields)
    if isinstance(made, schema_dataset.SchemaDatasetFacet):
        made.fields = [schema_dataset.SchemaDatasetFacetFields(**each) for each in fields["fields"]]
    return made


def _below(kind: type[BaseFacet]) -> Iterator[type[BaseFacet]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
