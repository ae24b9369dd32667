"""
Everywhere that something is signed in a role's name.

Clients of boto3 and what is signed by hand (`tidings.aws.signed_http`) go through one method of
botocore; what does not pass it is no request that AWS would take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

Seen = Callable[[str, str, AWSRequest], None]


def hook(seen: Seen) -> Callable[[], None]:
    """
    Tell *seen* service, Region and request of each one that is about to be signed.

    What is returned ends that.
    """
    true = SigV4Auth.add_auth

    def add_auth(self: Any, request: AWSRequest) -> None:
        seen(self._service_name, self._region_name, request)
        true(self, request)

    def end() -> None:
        SigV4Auth.add_auth = true  # type: ignore[method-assign]

    SigV4Auth.add_auth = add_auth  # type: ignore[method-assign]
    return end


@contextmanager
def signatures(seen: Seen) -> Iterator[None]:
    """As `hook`, for a while."""
    end = hook(seen)
    try:
        yield
    finally:
        end()
