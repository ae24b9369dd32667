"""The verbs of sums (20), computed here as the protocol has them and by nothing of ours."""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Any

from tests.conformance import values
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S

_BUCKETS = 64


def step_sums(scene: Scene, argument: dict[str, Any]) -> None:
    """Keep the sums `as`, of `types` or of all, once they are those of the event `behind`."""
    page = int(argument.get("behind", "0" * 24)[8:18], 16)
    types = {"types": argument["types"]} if "types" in argument else {}
    deadline = time.monotonic() + REACH_S
    while True:
        answer = scene.http.get(f"/feeds/{scene.target.feed}/sums", params=types)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told.keys() == {"page", "sums"} and len(told["sums"]) == _BUCKETS, told
        if told["page"] >= page and None not in told["sums"]:
            scene.names[argument["as"]] = [int(each, 16) for each in told["sums"]]
            return
        assert time.monotonic() < deadline, f"no sums of page {page} within {REACH_S} s: {told}"
        time.sleep(0.05)


def step_sums_differ(scene: Scene, argument: dict[str, Any]) -> None:
    """The sums `to` are those `from`, with the objects `added` and `taken` away at their ids."""
    before, after = scene.names[argument["from"]], scene.names[argument["to"]]
    expected = list(before)
    for objects, sign in ((argument["added"], 1), (argument["taken"], -1)):
        for short in objects:
            fields = values.operation({k: v for k, v in short.items() if k != "at"}, scene.token)
            kind = fields["type"].replace("%", "%25").replace("/", "%2F")
            key = f"{kind}/{fields['id']}".encode()
            digest = hashlib.sha256(short["at"][8:].encode() + key).digest()[:8]
            bucket = zlib.crc32(key) % _BUCKETS
            expected[bucket] = (expected[bucket] + sign * int.from_bytes(digest, "big")) % 2**64
    assert after == expected
    assert not (argument.get("zero") and any(after))
