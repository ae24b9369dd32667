"""
What operators ask for and are answered: health, configuration, cluster, diagnostics.

Where a managed service has no equivalent, the answer says what there is instead: one member,
which leads; and of machines, only the sandbox that happens to answer.
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
from tidings.aws.web import changes as http
from tidings.aws.web import links, plain_yaml
from tidings.aws.web.routes import NEEDS
from tidings.core.changeagent.admin import Administrator
from tidings.core.changeagent.changes import number_of, place_of
from tidings.core.changeagent.list import Lister, Query
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.json_body import check_size

Event = Mapping[str, Any]
Answer = tuple[int, str, str]  # status, content type and body; no type where there is no body

MEMBER = "1"  # the one there is
FORM = "application/x-www-form-urlencoded"
YAML_TYPES = ("application/yaml", "text/yaml")
_NODE_ID = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)
_UP = {"true": True}
_FIXED = (
    "members of a managed service are not added or removed by request: a Region or a replica is a "
    "change of the deployment"
)


class Administration:
    """Answers one request of `ROUTES`, by the key of its route."""

    def __init__(
        self, administrator: Administrator, lister: Lister, *, stage: str, prefix: str
    ) -> None:
        self._administrator, self._lister = administrator, lister
        self._stage, self._prefix = stage, prefix
        self._answers: dict[str, Callable[[Event], Answer]] = {
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

    def answer(self, event: Event) -> Answer:
        """
        Raises:
            TidingsError: see `changes.refused`.
        """
        key = event["routeKey"].replace("/feeds/{feed}", "").replace("POST ", "PUT ")
        return self._answers[key](event)

    def _check(self, event: Event) -> str:
        need, given = NEEDS[event["routeKey"]], http.credential_of(event)
        return self._administrator.check(http.feed_of(event), need, given)

    def _health(self, event: Event) -> Answer:
        """Without a password: load balancers have none."""
        up = self._administrator.is_up()
        return (200, http.TEXT, "ok") if up else (503, http.TEXT, "marked down")

    def _mark(self, event: Event) -> Answer:
        self._check(event)
        if http.content_type_of(event) != FORM:
            return _form_problem(415, [], "ContentTypeError", "Unsupported Content-Type")
        body = http.body_of(event)
        check_size(body)
        given = parse_qs(body.decode("utf-8", "replace")).get("up")
        if not given:
            return _form_problem(422, ["up"], "RequiredError", "Required")
        self._administrator.mark(up=_UP.get(given[0].lower(), False))
        return 200, "", ""

    def _config(self, event: Event) -> Answer:
        feed = self._check(event)  # headers of webhooks may hold secrets
        return 200, http.YAML, _yaml(self._administrator.configuration(feed).document())

    def _configure(self, event: Event) -> Answer:
        feed = self._check(event)
        if http.content_type_of(event) not in YAML_TYPES:
            return 415, "", ""
        document = plain_yaml.read(http.body_of(event))
        return 200, http.YAML, _yaml(self._administrator.configure(feed, document).document())

    def _cluster(self, event: Event) -> Answer:
        self._check(event)
        return _json({"clusterId": self._stage, "members": {MEMBER: _address(event)}})

    def _members(self, event: Event) -> Answer:
        self._check(event)
        return _json({MEMBER: _address(event)})

    def _member(self, event: Event) -> Answer:
        self._check(event)
        name = event["pathParameters"]["id"]
        if not _NODE_ID.fullmatch(name):
            return _json({"error": f"Invalid Node ID: {name[:64]}"}, 400)
        return (200, http.TEXT, _address(event)) if name == MEMBER else (404, "", "")

    def _fixed(self, event: Event) -> Answer:
        self._check(event)
        return _json({"error": _FIXED}, 501)

    def _diagnostics(self, event: Event) -> Answer:
        self._check(event)
        below = f"{links.base_url(links.headers_of(event), self._prefix)}/diagnostics"
        parts = {name: f"{below}/{name}" for name in ("id", "stack", "raft", "memory", "cpu")}
        machine = {"arch": platform.machine(), "os": sys.platform, "maxprocs": os.cpu_count()}
        return _json({**machine, **parts})

    def _part(self, event: Event) -> Answer:
        self._check(event)
        match event["pathParameters"]["part"]:
            case "id":
                return 200, http.TEXT, MEMBER
            case "raft":
                return _json(self._raft())
            case "stack":
                return 200, http.TEXT, _stacks()
            case "memory":
                return _json(_memory())
            case "cpu":
                return _json(_cpu())
        return _json({"error": "Not found"}, 404)

    def _raft_part(self, event: Event) -> Answer:
        self._check(event)
        part = event["pathParameters"]["part"]
        if part not in ("state", "leader"):
            return _json({"error": "Not found"}, 404)
        return 200, http.TEXT, str(self._raft()[part])

    def _raft(self) -> dict[str, object]:
        """The log of the default feed; the one member leads, without elections."""
        found = self._lister.list(DEFAULT_FEED, Query(limit=0, since=2**63))
        indices = ("lastIndex", "appliedIndex", "committedIndex")
        return {
            "id": MEMBER,
            "state": "leader",
            "leader": MEMBER,
            "term": 1,
            "nodeConfig": {"current": {"new": [{"nodeId": MEMBER}]}},
            "firstIndex": number_of(place_of(found.floor)[0] + 1, 0),
            **dict.fromkeys(indices, found.head),
        }


def _yaml(document: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True))


def _json(body: object, status: int = 200) -> Answer:
    return status, http.JSON, http.spelled(body)


def _form_problem(status: int, names: list[str], kind: str, message: str) -> Answer:
    return _json([{"fieldNames": names, "classification": kind, "message": message}], status)


def _address(event: Event) -> str:
    return links.host_of(links.headers_of(event))


def _stacks() -> str:
    """Of this sandbox: where each of its threads is, without any value."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"thread {names.get(ident, '?')}\n{''.join(traceback.format_stack(frame))}\n"
        for ident, frame in sys._current_frames().items()
    )


def _memory() -> dict[str, int]:
    """Of this sandbox, in bytes: the most it ever held."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"alloc": held, "totalAlloc": held, "sys": held, "lookups": 0, "mallocs": 0, "frees": 0}


def _cpu() -> dict[str, int]:
    """Of this sandbox."""
    count = os.cpu_count() or 1
    threads = threading.active_count()
    return {"gomaxprocs": count, "numcpu": count, "numcgocall": 0, "numgoroutine": threads}
