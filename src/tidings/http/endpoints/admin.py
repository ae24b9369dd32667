"""The routes of changeagent for operators: health, configuration, cluster and diagnostics.

A managed service has no cluster, so responses about the cluster report a single member, which is
the leader. Data about the machine describes only the process that serves the request.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs

from tidings.core import limits
from tidings.core.auth.guard import ADMIN, ALL, PUBLIC, READ_ALL
from tidings.core.changeagent.changes import number_of, place_of
from tidings.core.changeagent.config import Administrator
from tidings.core.changeagent.list import Lister, Query
from tidings.core.errors import (
    STORAGE_DAMAGED,
    InvalidChange,
    InvalidSetting,
    StorageFailed,
    UnknownChange,
)
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.json_body import check_size
from tidings.http import wire
from tidings.http.answers import changeagent_answer
from tidings.http.request import Answer, base_url, host_of
from tidings.http.schemas import ChangesError
from tidings.http.wire import (
    PLAIN,
    UNSET,
    Call,
    Example,
    Fields,
    Kind,
    Name,
    Unset,
    json_of,
)

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed
    from tidings.http.wire import Declared

MEMBER = "1"  # the id of the only member
FORM = "application/x-www-form-urlencoded"
YAML_TYPES = ("application/yaml", "text/yaml")
_NODE_ID = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)
_UP = {"true": True}
_FIXED = (
    "members of a managed service are not added or removed by request; to add a Region or a "
    "replica, change the deployment"
)


_HEALTH, _MEMBERS, _CONFIG = "/health", "/cluster/members", ("/config", "/feeds/{feed}/config")
TEXT, YAML = "text/plain", "application/yaml"
_DURATION = {"anyOf": [PLAIN, {"type": "null"}, {"type": "integer", "const": 0}]}
Duration = Annotated[Any, Kind(_DURATION)]


class ChangesConfiguration(Fields, example={"minPurgeRecords": 1000, "minPurgeDuration": "72h"}):
    minPurgeRecords: int | Unset | None = UNSET
    minPurgeDuration: Duration = UNSET
    electionTimeout: Duration = UNSET
    heartbeatTimeout: Duration = UNSET
    webHooks: Annotated[list[dict[str, Any]], wire.most(limits.HOOKS_MAX)] | Unset | None = UNSET


class HealthMark(Fields):
    up: Annotated[str, Example("true")] | Unset = UNSET


class FormProblem(Fields, name=""):
    fieldNames: Annotated[list[str], Example(["up"])]
    classification: Annotated[str, Example("RequiredError")]
    message: Annotated[str, Example("Required")]


class ClusterReport(Fields, name="Cluster"):
    clusterId: Annotated[str, Example("prod")]
    members: Members


Members = Annotated[dict[str, str], Name("Members"), Example({"1": "feed.example.com"})]
Diagnostics = Annotated[
    dict[str, Any],
    Name("Diagnostics"),
    Example({"arch": "x86_64", "os": "linux", "maxprocs": "2"}),
]
HealthMarkError = Annotated[ChangesError | list[FormProblem], Name("HealthMarkError")]
_CONFIGURED = ((YAML, ChangesConfiguration),)
_REPLACED: dict[str, Any] = {
    "body": ((YAML, ChangesConfiguration | None),),
    "answers": _CONFIGURED,
    "empty": (415,),
    "errors": (InvalidSetting,),
}
_UP_RULE = "`true`, or another value for down"
_MARKED: dict[str, Any] = {
    "query": {"up": {**PLAIN, "description": _UP_RULE, "examples": ["true"]}},
    "body": ((FORM, HealthMark),),
    "is_optional": True,
    "answers": (),
    "error": HealthMarkError,
}
_REJECTED: dict[str, Any] = {"status": 501, "answers": json_of(ChangesError)}


class Administration(wire.Routes, function="administer"):
    """The endpoint of changeagent's routes for operators."""

    def __init__(
        self,
        administrator: Administrator,
        lister: Lister,
        *,
        stage: str,
        prefix: str,
        storage: Callable[[], StorageFailed | None],
    ) -> None:
        self._administrator, self._lister, self._storage = administrator, lister, storage
        self._stage, self._prefix, self.guard = stage, prefix, administrator.gate.guard

    @wire.get(_HEALTH, PUBLIC, "9.6", answers=((TEXT, PLAIN),), others=((503, TEXT, PLAIN),))
    def get_health(self, call: Call) -> Answer:
        """Return the health for load balancers.

        No password is needed, because load balancers have none.
        """
        problem = self._storage()
        if problem is not None and problem.code != STORAGE_DAMAGED:  # other data can be used
            return _text(str(problem), 503)
        up = self._administrator.is_up()
        return _text("ok") if up else _text("marked down", 503)

    @wire.put(_HEALTH, ADMIN, "12.14", **_MARKED)
    def mark_health(self, call: Call) -> Answer:
        """Mark the deployment up or down."""
        request = call.request
        body = request.content()
        check_size(body)
        query = {"up": [request.query["up"]]} if request.query.get("up") else {}
        if request.media_type != FORM and (request.media_type or body):
            return _form_problem(415, [], "ContentTypeError", "Unsupported Content-Type")
        given = {**query, **parse_qs(body.decode("utf-8", "replace"))}.get("up")
        if not given:
            return _form_problem(400, ["up"], "RequiredError", "Required")
        self._administrator.mark(up=_UP.get(given[0].lower(), False))
        return Answer(200)

    @wire.post(_HEALTH, ADMIN, "12.14", **_MARKED)
    def post_mark_of_health(self, call: Call) -> Answer:
        """Mark the deployment up or down."""
        return self.mark_health(call)

    @wire.get(_CONFIG, ADMIN, "12.10", answers=_CONFIGURED)
    def get_configuration(self, call: Call) -> Answer:
        """Return the configuration."""
        return _yaml(self._administrator.configuration(call.feed).redacted_json())

    @wire.put(_CONFIG, ADMIN, "12.10", **_REPLACED)
    def put_configuration(self, call: Call) -> Answer:
        """Replace the configuration."""
        if call.request.media_type not in YAML_TYPES:
            return Answer(415)
        from tidings.http.configuration_yaml import read_yaml  # as in `_yaml`

        document = read_yaml(call.request.content())
        return _yaml(self._administrator.configure(call.feed, document).redacted_json())

    @wire.post(_CONFIG, ADMIN, "12.10", **_REPLACED)
    def post_configuration(self, call: Call) -> Answer:
        """Replace the configuration."""
        return self.put_configuration(call)

    @wire.get("/cluster", READ_ALL, "12.15")
    def get_cluster(self, call: Call) -> ClusterReport:
        """Return the cluster, with its only member."""
        return ClusterReport(clusterId=self._stage, members=self.list_members(call))

    @wire.get(_MEMBERS, READ_ALL, "12.15")
    def list_members(self, call: Call) -> Members:
        """Return the only member of the cluster."""
        return {MEMBER: host_of(call.request.headers)}

    @wire.put(_MEMBERS, ADMIN, "12.15", **_REJECTED)
    def put_member(self, call: Call) -> Answer:
        """Reject the request, because members are fixed."""
        return changeagent_answer(501, {"error": _FIXED})

    @wire.post(_MEMBERS, ADMIN, "12.15", **_REJECTED)
    def post_member(self, call: Call) -> Answer:
        """Reject the request, because members are fixed."""
        return self.put_member(call)

    @wire.get(
        _MEMBERS + "/{id}",
        READ_ALL,
        "12.15",
        answers=((TEXT, PLAIN),),
        empty=(404,),
        errors=(InvalidChange, UnknownChange),
    )
    def get_member(self, call: Call) -> Answer:
        """Return the address of the only member."""
        if not _NODE_ID.fullmatch(call.id):
            return changeagent_answer(400, {"error": f"Invalid Node ID: {call.id[:64]}"})
        return _text(host_of(call.request.headers)) if call.id == MEMBER else Answer(404)

    @wire.delete(_MEMBERS + "/{id}", ADMIN, "12.15", **_REJECTED)
    def delete_member(self, call: Call) -> Answer:
        """Reject the request, because members are fixed."""
        return self.put_member(call)

    @wire.get("/diagnostics", READ_ALL, "12.13")
    def get_diagnostics(self, call: Call) -> Diagnostics:
        """Return the machine of the process that answers."""
        below = f"{base_url(call.request.headers, self._prefix)}/diagnostics"
        parts = {name: f"{below}/{name}" for name in ("id", "stack", "raft", "memory", "cpu")}
        machine = {"arch": platform.machine(), "os": sys.platform, "maxprocs": str(os.cpu_count())}
        return {**machine, **parts}

    @wire.get(
        "/diagnostics/{part}",
        READ_ALL,
        "12.13",
        answers=(*json_of(Diagnostics), (TEXT, PLAIN)),
        errors=(UnknownChange,),
    )
    def get_diagnostics_part(self, call: Call) -> Answer:
        """Return a part of the diagnostics of the process that answers."""
        match call.request.parameters["part"]:
            case "id":
                return _text(MEMBER)
            case "raft":
                return changeagent_answer(200, self._raft())
            case "stack":
                return _text(_stacks())
            case "memory":
                return changeagent_answer(200, _memory())
            case "cpu":
                return changeagent_answer(200, _cpu())
        return changeagent_answer(404, {"error": "Not found"})

    @wire.get(
        "/diagnostics/raft/{part}",
        READ_ALL,
        "12.13",
        answers=((TEXT, PLAIN),),
        errors=(UnknownChange,),
    )
    def get_raft_part(self, call: Call) -> Answer:
        """Return a part of the state of the log."""
        part = call.request.parameters["part"]
        if part not in ("state", "leader"):
            return changeagent_answer(404, {"error": "Not found"})
        return _text(str(self._raft()[part]))

    def admit(self, found: Declared, call: Call) -> Allowed:
        if found.need is PUBLIC:
            return ALL
        if found.paths[0] == _HEALTH:
            return self._administrator.check_health(found.need, call.credential)
        return self._administrator.gate.check(call.feed, found.need, call.credential)

    def _raft(self) -> dict[str, object]:
        """Return the state of the default feed's log. The single member leads without elections."""
        listing = self._lister.list(DEFAULT_FEED, Query(limit=0, since=2**63))
        indices = ("lastIndex", "appliedIndex", "committedIndex")
        return {
            "id": MEMBER,
            "state": "Leader",
            "leader": MEMBER,
            "term": 1,
            "configChangeState": "Stable",
            "nodeConfig": {"current": {"new": [{"nodeId": MEMBER}]}},
            "firstIndex": number_of(place_of(listing.floor)[0] + 1, 0),
            **dict.fromkeys(indices, listing.head),
        }


def _yaml(document: Mapping[str, object]) -> Answer:
    from tidings.http.configuration_yaml import write_yaml  # the package is not always installed

    return Answer(200, {"content-type": YAML}, write_yaml(document))


def _text(text: str, status: int = 200) -> Answer:
    return Answer(status, {"content-type": TEXT}, text)


def _form_problem(status: int, names: list[str], kind: str, message: str) -> Answer:
    return changeagent_answer(
        status, [{"fieldNames": names, "classification": kind, "message": message}]
    )


def _stacks() -> str:
    """Return the stack of each thread of this process, without the values of variables."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"thread {names.get(ident, '?')}\n{''.join(traceback.format_stack(frame))}\n"
        for ident, frame in sys._current_frames().items()
    )


def _memory() -> dict[str, int]:
    """Return the peak memory of this process in bytes."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"alloc": held, "totalAlloc": held, "sys": held, "lookups": 0, "mallocs": 0, "frees": 0}


def _cpu() -> dict[str, str]:
    """Return counts of this process as strings, with the names of Go's runtime, as changeagent."""
    count, threads = str(os.cpu_count() or 1), str(threading.active_count())
    return {"gomaxprocs": count, "numcpu": count, "numcgocall": "0", "numgoroutine": threads}
