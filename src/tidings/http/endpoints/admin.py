"""Answer requests of operators for health, configuration, cluster and diagnostics.

A managed service has no cluster, so responses about the cluster report a single member, which is
the leader. Data about the machine describes only the process that serves the request.

Configurations are written in the subset of YAML that JSON can express. Aliases and tags are
rejected, because aliases can expand a few lines to gigabytes, and tags can select the type that is
constructed.
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
from typing import Any
from urllib.parse import parse_qs

import yaml

from tidings.core import limits
from tidings.core.changeagent.changes import number_of, place_of
from tidings.core.changeagent.config import Administrator
from tidings.core.changeagent.list import Lister, Query
from tidings.core.errors import (
    STORAGE_DAMAGED,
    InvalidSetting,
    StorageFailed,
    TidingsError,
    TooLarge,
)
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.json_body import check_size
from tidings.http.answers import changeagent_answer, changeagent_refusal
from tidings.http.endpoints.producers import TEXT, YAML
from tidings.http.request import Answer, Request, base_url, host_of
from tidings.http.routes import NEEDS

MEMBER = "1"  # the id of the only member
FORM = "application/x-www-form-urlencoded"
YAML_TYPES = ("application/yaml", "text/yaml")
_NODE_ID = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)
_UP = {"true": True}
_FIXED = (
    "members of a managed service are not added or removed by request; to add a Region or a "
    "replica, change the deployment"
)
_YAML_SCALARS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_YAML_PROBLEM_CHARS = 200


class Administration:
    """The endpoint of changeagent's routes for operators. It selects a method by the route key."""

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
        self._stage, self._prefix = stage, prefix
        self._answers: dict[str, Callable[[Request], Answer]] = {
            "GET /health": self._health,
            "PUT /health": self._mark,
            "GET /config": self._config,
            "PUT /config": self._configure,
            "GET /cluster": self._cluster,
            "GET /cluster/members": self._members,
            "PUT /cluster/members": self._fixed,
            "GET /cluster/members/{id}": self._member,
            "DELETE /cluster/members/{id}": self._fixed,
            "GET /diagnostics": self._diagnostics,
            "GET /diagnostics/{part}": self._part,
            "GET /diagnostics/raft/{part}": self._raft_part,
        }

    def __call__(self, request: Request) -> Answer:
        key = request.route.replace("/feeds/{feed}", "").replace("POST ", "PUT ")
        try:
            return self._answers[key](request)
        except TidingsError as error:
            return changeagent_refusal(error)

    def _check(self, request: Request) -> str:
        need = NEEDS[request.route]
        return self._administrator.check(request.feed, need, request.credential)

    def _health(self, request: Request) -> Answer:
        """Report health without a password, because load balancers have no password."""
        problem = self._storage()
        if problem is not None and problem.code != STORAGE_DAMAGED:  # other data can be used
            return _text(str(problem), 503)
        up = self._administrator.is_up()
        return _text("ok") if up else _text("marked down", 503)

    def _mark(self, request: Request) -> Answer:
        self._administrator.check_health(NEEDS[request.route], request.credential)
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

    def _config(self, request: Request) -> Answer:
        feed = self._check(request)
        return _yaml(self._administrator.configuration(feed).redacted_json())

    def _configure(self, request: Request) -> Answer:
        feed = self._check(request)
        if request.media_type not in YAML_TYPES:
            return Answer(415)
        document = read_yaml(request.content())
        return _yaml(self._administrator.configure(feed, document).redacted_json())

    def _cluster(self, request: Request) -> Answer:
        self._check(request)
        return changeagent_answer(
            200, {"clusterId": self._stage, "members": {MEMBER: _address(request)}}
        )

    def _members(self, request: Request) -> Answer:
        self._check(request)
        return changeagent_answer(200, {MEMBER: _address(request)})

    def _member(self, request: Request) -> Answer:
        self._check(request)
        name = request.parameters["id"]
        if not _NODE_ID.fullmatch(name):
            return changeagent_answer(400, {"error": f"Invalid Node ID: {name[:64]}"})
        return _text(_address(request)) if name == MEMBER else Answer(404)

    def _fixed(self, request: Request) -> Answer:
        self._check(request)
        return changeagent_answer(501, {"error": _FIXED})

    def _diagnostics(self, request: Request) -> Answer:
        self._check(request)
        below = f"{base_url(request.headers, self._prefix)}/diagnostics"
        parts = {name: f"{below}/{name}" for name in ("id", "stack", "raft", "memory", "cpu")}
        machine = {"arch": platform.machine(), "os": sys.platform, "maxprocs": str(os.cpu_count())}
        return changeagent_answer(200, {**machine, **parts})

    def _part(self, request: Request) -> Answer:
        self._check(request)
        match request.parameters["part"]:
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

    def _raft_part(self, request: Request) -> Answer:
        self._check(request)
        part = request.parameters["part"]
        if part not in ("state", "leader"):
            return changeagent_answer(404, {"error": "Not found"})
        return _text(str(self._raft()[part]))

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
    text = str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True))
    return Answer(200, {"content-type": YAML}, text)


def _text(text: str, status: int = 200) -> Answer:
    return Answer(status, {"content-type": TEXT}, text)


def _form_problem(status: int, names: list[str], kind: str, message: str) -> Answer:
    return changeagent_answer(
        status, [{"fieldNames": names, "classification": kind, "message": message}]
    )


def _address(request: Request) -> str:
    return host_of(request.headers)


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


class _PlainLoader(yaml.SafeLoader):
    """A loader that reads scalars without a JSON type, such as dates, as strings."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it without `ClassVar`)
        first: [pair for pair in known if pair[0] in _YAML_SCALARS]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of *node*.

        Raises:
            ValueError: a key is repeated, so one of its values would be ignored.
        """
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise ValueError("a key is given more than once")
        return mapping


def read_yaml(body: bytes) -> object:
    """Return the single document in *body*.

    Raises:
        TooLarge: the body exceeds the size limit of configurations.
        InvalidSetting: the body is not YAML, or JSON cannot express the document.
    """
    if len(body) > limits.CONFIGURATION_BYTES_MAX:
        most = limits.CONFIGURATION_BYTES_MAX
        raise TooLarge(f"a configuration holds at most {most} bytes", field="body", value=len(body))
    try:
        _check_yaml(body)
        return yaml.load(body, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = _problem_of(error)[:_YAML_PROBLEM_CHARS]
        raise InvalidSetting(f"Error parsing YAML: {problem}") from None


def _problem_of(error: Exception) -> str:
    """Return the problem and its location, but no text of the document, which may have secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


def _check_yaml(body: bytes) -> None:
    """Check the parser's events before any value is constructed from them."""
    depth = 0
    for event in yaml.parse(body, Loader=_PlainLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise ValueError("tags are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limits.JSON_DEPTH_MAX:
            raise ValueError(f"nested deeper than {limits.JSON_DEPTH_MAX}")
