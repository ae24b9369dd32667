"""Log lines that name the key of a request (RUNBOOKS.md, *A key leaked*).

The lines are written to stdout: Powertools triples their size, and its import delays a stream.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidings.core.auth.guard import credential_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.aws.config.settings import Networks

_FORWARDED = re.compile(r'(?:^|[;,\s])for="?\[?([^";,\s\]]+)', re.IGNORECASE)


def key_in(headers: Mapping[str, str]) -> str:
    """Return the id of the key in *headers*, whether or not the key is valid; "" without a key."""
    credential = credential_from(headers.get("authorization"))
    if credential is None:
        return ""
    from tidings.core.auth.keys import find_id  # many feeds have no key

    return find_id(credential.secret)


def source_address(peer: str, headers: Mapping[str, str], proxies: Networks) -> str:
    """Return the last address of the request's path that is not in *proxies*.

    *peer* is the address that connected. A client cannot forge addresses that follow its own.
    """
    from ipaddress import ip_address

    path = _FORWARDED.findall(headers.get("forwarded", ""))
    others = headers.get("x-forwarded-for", "").split(",")
    path = path or [each.strip() for each in others if each.strip()]
    address = peer
    try:
        while any(ip_address(address) in network for network in proxies) and path:
            address = path.pop()
    except ValueError:
        pass  # the header of a trusted proxy has a name instead of an address
    return address


def write(message: str, request: str, proxies: Networks | None, peer: str, **fields: Any) -> None:
    """Write a line with *fields* that are set, and with the address unless *proxies* is None."""
    headers = fields.pop("headers", {})
    address = "" if proxies is None else source_address(peer, headers, proxies)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"level": "INFO", "message": message, "timestamp": now, "function_request_id": request}
    line |= {name: value for name, value in {**fields, "address": address}.items() if value}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
