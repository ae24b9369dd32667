"""A dictionary with a maximum size, for the data that a process keeps of each feed or key."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from tidings.core import limits

K = TypeVar("K")
V = TypeVar("V")


class Newest(OrderedDict[K, V]):
    """The last *maximum* entries that were set, so that deleted feeds do not accumulate.

    Threads may share it without a lock. An entry is missing for a moment while it is set again, so
    their readers must be able to read it from its store.
    """

    def __init__(self, maximum: int | None = None) -> None:
        super().__init__()
        self._maximum = limits.FEEDS_KNOWN_MAX if maximum is None else maximum

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._maximum:
            self.popitem(last=False)
