"""A twin in a subprocess, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path

from tidings.aws.config import twin_keys
from tidings.server import listening
from tidings.server.running import NotReady as NotReady
from tidings.server.running import Server


class Twin(Server):
    """
    A `Server` for `tidings local`, which is given *data* only if it was passed here.

    It also keeps the port of its DynamoDB.
    """

    command = "local"
    module = "tidings.twin"

    def __init__(self, *arguments: str, data: Path | None = None) -> None:
        super().__init__(*arguments, data=data)
        self.dynamodb_port = listening.free_port()
        self.dynamodb_url = f"http://127.0.0.1:{self.dynamodb_port}"

    @property
    def dynamodb_key(self) -> str:
        """Return the access key of its DynamoDB, while the twin runs."""
        return twin_keys.credentials(self.dynamodb_url)["aws_access_key_id"]

    @property
    def place(self) -> list[str]:
        return ["--endpoint-url", self.dynamodb_url]

    def options(self) -> list[str]:
        options = [*self.arguments, "--port", str(self.port)]
        options += ["--dynamodb-port", str(self.dynamodb_port)]
        if self._data is not None:
            options += ["--data", str(self._data)]
        return options
