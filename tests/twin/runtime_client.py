"""AWS's runtime client in a worker process: `python -P runtime_client.py HANDLER`.

This module imports no other module of Tidings, because the handler may belong to another release.
`AWS_LAMBDA_RUNTIME_API` is `user:password@host:port`. The C part of the client, which receives
events and answers them, supports this format. The Python part, which reports a handler that cannot
be imported, only supports `host:port`, so `Client` adds the credentials.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping

from awslambdaric import bootstrap  # type: ignore[import-untyped]
from awslambdaric.lambda_runtime_client import (  # type: ignore[import-untyped]
    LambdaRuntimeClient,
)


def basic(user_info: str) -> str:
    """Return the header Authorization for `user:password`."""
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


class Client(LambdaRuntimeClient):  # type: ignore[misc]  # awslambdaric has no types
    def __init__(self, address: str) -> None:
        self._user_info, _, host = address.rpartition("@")
        super().__init__(host)

    def call_rapid(
        self,
        http_method: str,
        endpoint: str,
        expected_http_code: int,
        payload: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        shown = {**(headers or {}), "Authorization": basic(self._user_info)}
        super().call_rapid(http_method, endpoint, expected_http_code, payload, shown)


if __name__ == "__main__":
    bootstrap.run(sys.argv[1], Client(os.environ["AWS_LAMBDA_RUNTIME_API"]))
