"""Administering: the configuration of a feed, and whether the deployment is up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.changeagent import config
from tidings.core.changeagent.config import Configuration
from tidings.core.changeagent.documents import CONFIGURATION, DEPLOYMENT, HEALTH, OperatorDocument
from tidings.core.errors import Unavailable
from tidings.core.model import feeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.auth.guard import Credential, Need
    from tidings.core.changeagent.stores import OperatorDocuments
    from tidings.core.changeagent.users import Gate

DOWN = "down"
_ATTEMPTS = 3  # each loss means that somebody else wrote within the same tenth of a second


@dataclass(frozen=True, slots=True)
class Administrator:
    operator_documents: OperatorDocuments
    gate: Gate
    feeds: frozenset[str]

    def check(self, feed: str, need: Need, given: Credential | None) -> str:
        """
        *feed* if it is one of ours and *given* has what is needed.

        Raises:
            InvalidFeed, UnknownFeed, WrongUser, NoPasswordSet, WrongPassword, WrongKey,
                OutsideKey: see there.
        """
        name = feeds.check_known(feed, self.feeds)
        self.gate.check(name, need, given)
        return name

    def is_up(self) -> bool:
        """Whether load balancers are to send traffic; where nobody can tell, yes."""
        try:
            return self.operator_documents.operator_document(DEPLOYMENT, HEALTH).text != DOWN
        except Unavailable:
            return True

    def mark(self, *, up: bool) -> None:
        """Tell load balancers, and nobody else: everything goes on being served."""
        self._write(DEPLOYMENT, HEALTH, lambda _: "" if up else DOWN)

    def configuration(self, feed: str) -> Configuration:
        return config.stored(self.operator_documents.operator_document(feed, CONFIGURATION).text)

    def configure(self, feed: str, document: object) -> Configuration:
        """
        Replace the configuration by *document*; the new one.

        Raises:
            InvalidSetting: nothing was changed.
        """

        def change(standing: str) -> str:
            configuration = config.replaced(config.stored(standing), document)
            return config.encoded(configuration)

        return config.stored(self._write(feed, CONFIGURATION, change))

    def _write(self, feed: str, name: str, change: Callable[[str], str]) -> str:
        """What *change* makes of the document, on top of what others wrote meanwhile."""
        for _ in range(_ATTEMPTS):
            standing = self.operator_documents.operator_document(feed, name)
            text = change(standing.text)
            if self.operator_documents.write(feed, name, OperatorDocument(text, standing.version)):
                return text
        raise Unavailable(f"{feed}/{name} kept changing")
