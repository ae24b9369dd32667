"""Two releases of one function: each takes a share of the calls, as amid an update of a stage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Generic, Protocol, TypeVar


class Stoppable(Protocol):
    async def stop(self) -> None: ...


Each = TypeVar("Each", bound=Stoppable)


class Turns(Generic[Each]):
    """*each* runs the function, in one release or in several; *calls* are counted for each."""

    def __init__(self, name: str, each: Sequence[Each]) -> None:
        self.each = each
        self.calls = [0] * len(each)
        # By chance, as CodeDeploy shifts calls: in turn, a function would always call the same
        # release of another one. By the name, so that a run can be repeated.
        self._random = Random(name)

    def next(self) -> Each:
        """The one that takes the next call."""
        turn = self._random.randrange(len(self.each))
        self.calls[turn] += 1
        return self.each[turn]

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.each))
