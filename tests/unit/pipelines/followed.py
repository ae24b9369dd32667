"""A reader and the objects that a feed would have from it, without a server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tidings.client.poster import encode
from tidings.core.model.operations import parse_number
from tidings.pipelines.ingest_source import Batch, Digests, Reader

PATIENCE_S = 60.0


def known(kind: str) -> Digests:
    """Return no object, because the feed of the tests has none."""
    return {}


class Followed:
    """The objects by id that result from the operations of *make*'s reader, and its position.

    Both are stored as JSON, as a feed does, so that a reader can be made again and resume.
    """

    def __init__(self, make: Callable[[], Reader], name: str = "p.app") -> None:
        self._make, self._name = make, name
        self.objects = dict[str, Any]()
        self.state = dict[str, Any]()
        self.appended = list[dict[str, Any]]()
        self.reader: Reader | None = None

    def start(self) -> Followed:
        """Open a new reader at the stored position."""
        self.close()
        self.reader = self._make()
        self.reader.open(self._name, json.loads(json.dumps(self.state)), self._known)
        self._batches = self.reader.read()
        return self

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def step(self) -> Batch:
        """Apply the next batch; the reader continues after it only with the next step."""
        batch = next(self._batches)
        for operation in batch.operations:
            each = json.loads(encode(operation), parse_float=parse_number)
            self.appended.append(each)
            if each["event"] == "delete":
                self.objects.pop(each["id"], None)
            else:
                self.objects[each["id"]] = each["data"]
        if batch.state:
            self.state = {**self.state, **json.loads(json.dumps(dict(batch.state)))}
        return batch

    def lose(self) -> None:
        """End as if killed while the next batch is on its way to the feed, which has none of it."""
        next(self._batches)
        self.close()

    def until(self, is_so: Callable[[], bool]) -> Followed:
        """Apply batches until *is_so* returns True."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, self.objects
            self.step()
        return self

    def until_ids(self, *ids: str) -> Followed:
        return self.until(lambda: set(self.objects) == set(ids))

    def settle(self) -> Followed:
        """Apply batches until the reader has had nothing new twice."""
        quiet = 0
        while quiet < 2:
            batch = self.step()
            quiet = 0 if batch.operations or batch.state else quiet + 1
        return self

    def _known(self, kind: str) -> Digests:
        return dict.fromkeys(self.objects, 0)
