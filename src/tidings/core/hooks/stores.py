"""The ports of `hooks`, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.changeagent.webhooks import Verdict


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A POST of *body* to *url*; *headers* may contain secrets."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: str = field(repr=False)


class Post(Protocol):
    """
    A function that sends all *requests* in parallel and returns the verdict for each, in order.

    When the call returns, nothing more is sent for these requests.
    """

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]: ...
