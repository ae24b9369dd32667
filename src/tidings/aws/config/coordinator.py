"""The format of TIDINGS_COORDINATOR, the table of the leader election."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

RULE = "must be dynamodb://TABLE[?region=REGION][&endpoint=URL]"


class WrongCoordinator(Exception):
    """TIDINGS_COORDINATOR is invalid; the message is the rule that it breaks."""


@dataclass(frozen=True, slots=True)
class CoordinatorUrl:
    """The table of the leader election; *region* and *endpoint*: "" for the defaults."""

    table: str
    region: str = ""
    endpoint: str = ""


def parse(text: str) -> CoordinatorUrl | None:
    """
    Return the table named by *text*; None if *text* is empty.

    Raises:
        WrongCoordinator: *text* does not name a table.
    """
    if not text:
        return None
    try:
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise WrongCoordinator(RULE) from None
    unknown = options.keys() - {"region", "endpoint"}
    if parts.scheme != "dynamodb" or not parts.netloc or parts.path or parts.fragment or unknown:
        raise WrongCoordinator(RULE)
    table = unquote(parts.netloc)  # an ARN if the table is in another account
    return CoordinatorUrl(table, options.get("region", ""), options.get("endpoint", ""))
