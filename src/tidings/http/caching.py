"""
What a cache in front of a feed may give to more than one client (PROTOCOL 4.11).

Everything else carries `no-store` (`answers.ALWAYS`). What is shared is what clients wait for, so
that many who wait behind one cursor cost one request; and what nothing can be missing from, since
it is followed by more. The constants are for who sets a cache up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed

# Where there are such answers; `*` is any part of a path.
PATHS = ("/changes", "/feeds/*/changes", "/feeds/*/pages")
# What they depend on, beside path and query. Whoever shows another credential is another client.
CREDENTIAL = "Authorization"
KEY = ("Accept-Encoding", CREDENTIAL, "Origin")
# Without `max-age`: a browser keeps none, because it cannot tell one wait from the next, and
# CloudFront may take `max-age=0` for a wish that nobody waits for this answer.
CONTROL = f"s-maxage={limits.SHARED_S}"

_SHARED: Mapping[str, str] = {"cache-control": CONTROL, "vary": ", ".join(KEY)}
_NOT_SHARED: Mapping[str, str] = {}


def sharing(allowed: Allowed, *, waits: bool, full: bool) -> Mapping[str, str]:
    """
    The headers of an answer that others may be given, too; none where it is of one client alone.

    *waits*: the request would have waited for news. *full*: more follows what was told, so that
    whoever reads it asks on. What a key with a rate is answered has to be counted here.
    """
    if allowed.admission.rate or not (waits or full):
        return _NOT_SHARED
    return _SHARED
