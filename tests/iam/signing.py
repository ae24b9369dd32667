"""Everywhere that something is signed in a role's name.

Clients of boto3 go through one method of botocore, rows of the state and messages to WebSockets
through `tidings.aws.signed_http`; AWS would accept no other request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from tidings.aws.signed_http import Signer

Seen = Callable[[str, str, AWSRequest], None]


def hook(seen: Seen) -> Callable[[], None]:
    """Call *seen* with service, Region and request of each one that is about to be signed.

    The returned function ends that.
    """
    of_botocore, of_ours = SigV4Auth.add_auth, Signer.head

    def add_auth(self: Any, request: AWSRequest) -> None:
        seen(self._service_name, self._region_name, request)
        of_botocore(self, request)

    def head(
        self: Signer,
        credentials: ReadOnlyCredentials,
        method: str,
        path: str,
        body: bytes,
        headers: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        request = AWSRequest(method, f"https://{self.host}{path}", dict(headers), body)
        seen(self.service, self.region, request)
        return of_ours(self, credentials, method, path, body, headers)

    def end() -> None:
        SigV4Auth.add_auth = of_botocore  # type: ignore[method-assign]
        Signer.head = of_ours  # type: ignore[method-assign]

    SigV4Auth.add_auth = add_auth  # type: ignore[method-assign]
    Signer.head = head  # type: ignore[method-assign]
    return end


@contextmanager
def signatures(seen: Seen) -> Iterator[None]:
    """Install `hook` in this context."""
    end = hook(seen)
    try:
        yield
    finally:
        end()
