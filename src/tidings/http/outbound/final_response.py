"""Skip informational responses (1xx) to outgoing requests."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse, parse_headers
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import urllib3

INFORMATIONAL_MAX = 32  # maximum per request; after more, a final response may never arrive
_FINAL, _SWITCHING = 200, 101


class FinalResponse(HTTPResponse):
    """A response that skips every 1xx except 101 (RFC 9110, 15.2); http.client skips only 100."""

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(INFORMATIONAL_MAX):
            found = super()._read_status()  # type: ignore[misc]
            version, status, reason = cast("tuple[str, int, str]", found)
            if status >= _FINAL or status == _SWITCHING:
                return version, status, reason
            parse_headers(self.fp)  # skip headers, such as the links of 103
        raise HTTPException(f"more than {INFORMATIONAL_MAX} informational responses")


def await_final(pool: urllib3.PoolManager) -> urllib3.PoolManager:
    """Return *pool*, changed to skip informational responses."""
    import urllib3

    class Plain(urllib3.connection.HTTPConnection):
        response_class = FinalResponse

    class Secure(urllib3.connection.HTTPSConnection):
        response_class = FinalResponse

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    pool.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return pool
