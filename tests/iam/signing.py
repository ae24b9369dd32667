"""
Everywhere that something is signed in a role's name.

Clients of boto3 and messages (`tidings.aws.gateway.sigv4_client`) go through one method of
botocore, rows of the state through `tidings.aws.dynamodb.transport.signatures`; what passes neither
is no request that AWS would take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from tidings.aws.dynamodb.transport.signatures import Signer

Seen = Callable[[str, str, AWSRequest], None]


def hook(seen: Seen) -> Callable[[], None]:
    """
    Tell *seen* service, Region and request of each one that is about to be signed.

    What is returned ends that.
    """
    of_botocore, of_ours = SigV4Auth.add_auth, Signer.head

    def add_auth(self: Any, request: AWSRequest) -> None:
        seen(self._service_name, self._region_name, request)
        of_botocore(self, request)

    def head(self: Signer, credentials: ReadOnlyCredentials, target: str, body: bytes) -> bytes:
        asked = AWSRequest("POST", f"https://{self.host}/", {"X-Amz-Target": target}, body)
        seen(self.service, self.region, asked)
        return of_ours(self, credentials, target, body)

    def end() -> None:
        SigV4Auth.add_auth = of_botocore  # type: ignore[method-assign]
        Signer.head = of_ours  # type: ignore[method-assign]

    SigV4Auth.add_auth = add_auth  # type: ignore[method-assign]
    Signer.head = head  # type: ignore[method-assign]
    return end


@contextmanager
def signatures(seen: Seen) -> Iterator[None]:
    """As `hook`, for a while."""
    end = hook(seen)
    try:
        yield
    finally:
        end()
