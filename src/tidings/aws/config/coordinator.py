"""What TIDINGS_COORDINATOR says: where leaders are elected."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

RULE = "must be dynamodb://TABLE[?region=REGION][&endpoint=URL]"


class WrongCoordinator(Exception):
    """The rule that it breaks."""


@dataclass(frozen=True, slots=True)
class CoordinatorUrl:
    """*region* and *endpoint* are "" where the environment says them."""

    table: str
    region: str = ""
    endpoint: str = ""


def parse(text: str) -> CoordinatorUrl | None:
    """
    None for an empty *text*.

    Raises:
        WrongCoordinator: it names no table.
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
    table = unquote(parts.netloc)  # an ARN, where it is of another account
    return CoordinatorUrl(table, options.get("region", ""), options.get("endpoint", ""))
