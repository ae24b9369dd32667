"""Broken ways to keep the sums of a state, each with one rule taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidings.core.model.pages import Page
from tidings.core.state.projector import Projector
from tidings.core.state.rows import NOTHING, Overwritten, Row


class GuessingProjector(Projector):
    """An existing row is regarded as one that replaced no row."""

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        return Projector.handle(replace(self, states=_Guessing(self.states)), feed, pages)


class _Guessing:
    def __init__(self, states: Any) -> None:
        self._states = states

    def __getattr__(self, name: str) -> Any:
        return getattr(self._states, name)

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        return [each or NOTHING for each in self._states.write(feed, rows)]


class ForgetfulProjector(Projector):
    """Does not store the note that belongs to the checkpoint."""

    def note(self, feed: str) -> bytes:
        return super().note(feed)[:8]
