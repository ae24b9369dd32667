"""
Decide which responses a shared cache in front of a feed may reuse (PROTOCOL 4.11).

All other responses carry `no-store` (`answers.ALWAYS`). Two kinds are shared. Responses that wait
for news are shared so that many clients at the same cursor cost one request. Responses that are
followed by more entries are shared because a reader cannot miss anything by them. The constants
document how to configure a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed

# The paths of such responses; `*` is any path segment.
PATHS = ("/changes", "/feeds/*/changes", "/feeds/*/pages")
# The request headers that these responses depend on, in addition to path and query. A different
# credential means a different client.
CREDENTIAL = "Authorization"
KEY = ("Accept-Encoding", CREDENTIAL, "Origin")
# There is no `max-age`: a browser must not cache, because it cannot distinguish two waits, and
# CloudFront may take `max-age=0` as a request not to wait for this response.
CONTROL = f"s-maxage={limits.SHARED_S}"

_SHARED: Mapping[str, str] = {"cache-control": CONTROL, "vary": ", ".join(KEY)}
_NOT_SHARED: Mapping[str, str] = {}


def sharing(allowed: Allowed, *, waits: bool, full: bool) -> Mapping[str, str]:
    """
    Return the headers of a shareable response, or none if the response is for one client only.

    *waits*: the request would have waited for news. *full*: more entries follow, so the reader
    sends another request. Requests of a key with a rate are never shared, as they must be counted
    here.
    """
    if allowed.admission.rate or not (waits or full):
        return _NOT_SHARED
    return _SHARED
