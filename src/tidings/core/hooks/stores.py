"""The ports of `hooks`, and what goes through them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.changeagent.webhooks import Verdict


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A POST of *body* to *url*; *headers* may hold secrets."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: str = field(repr=False)


class Post(Protocol):
    """
    Send all *requests* at once; what each was answered, in their order.

    When it returns, nothing of them will be sent any more.
    """

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]: ...
