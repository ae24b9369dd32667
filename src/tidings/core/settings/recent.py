"""Values of a store that a process remembers for some seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tidings.core.effects import Clock

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """
    What *read* returned for a key less than *age_ms()* ago; after `forget` the stored value again.

    A read that began before `forget` is not remembered, as it may have returned the old value.
    Threads that find a value too old at the same time read it once each.
    """

    def __init__(self, read: Callable[[K], V], age_ms: Callable[[], int], clock: Clock) -> None:
        self._read, self._age_ms, self._clock = read, age_ms, clock
        # Without a lock, because a server reads in its event loop. A value counts only while the
        # token that was current when its read began still is; `forget` replaces the token.
        self._known: dict[K, tuple[int, V, object]] = {}
        self._tokens: dict[K, object] = {}

    def get(self, key: K) -> V:
        """Return the value, as it was stored at most `age_ms` ago."""
        now, known, token = self._clock(), self._known.get(key), self._tokens.get(key)
        if known is not None and known[2] is token and 0 <= now - known[0] < self._age_ms():
            return known[1]
        value = self._read(key)
        self._known[key] = (now, value, token)
        return value

    def forget(self, key: K) -> None:
        """Read the value again the next time, because it was changed."""
        self._tokens[key] = object()
