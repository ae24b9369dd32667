"""
Changes over HTTP, as changeagent's clients post them.

Errors have changeagent's format `{"error":"..."}`, and a 401 has no body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import TidingsError
from tidings.http.answers import changeagent_answer, changeagent_refusal
from tidings.http.endpoints.posting import posted

if TYPE_CHECKING:
    from tidings.core.changeagent.submit import Proposer
    from tidings.http.request import Answer, Request

TEXT, YAML = "text/plain", "application/yaml"


@dataclass(frozen=True, slots=True)
class Changes:
    """`POST /changes`: appends a change; the response contains its number."""

    proposer: Proposer

    def __call__(self, request: Request) -> Answer:
        try:
            return changeagent_answer(200, {"_id": self.proposer.accept(posted(request))})
        except TidingsError as error:
            return changeagent_refusal(error)
