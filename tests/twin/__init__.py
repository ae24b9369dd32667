"""The local twin: the deployed functions on one machine, without an AWS account.

The twin emulates the services that call the functions and are called by them; the functions run
unchanged. `command` is the command line, and `twin` starts and stops every part. `Twin` runs a twin
in a subprocess for tests and benchmarks.

    dynamodb_local  DynamoDB Local: fetched, started, stopped
    store           the deployed tables, and the leases in them
    workers         worker processes under awslambdaric, the streaming function, schedules
    runtime_api     the API of a worker; the HTTP server of the internal APIs
    internal_apis   the APIs that functions call: Lambda and `@connections`
    http_gateway    the HTTP API; `socket_gateway`: the WebSocket API
    streams         event source mappings: readers of streams, batches, retries, failures
"""

from __future__ import annotations

from pathlib import Path

from tidings.aws.config import twin_keys
from tidings.server import processes
from tidings.server.running import Server


class Twin(Server):
    """A `Server` that runs `tidings local`, with the option --data only if *data* is given.

    After a restart, the twin has the same ports for HTTP and DynamoDB.
    """

    command = "local"
    module = "tests.twin"

    def __init__(self, *arguments: str, data: Path | None = None) -> None:
        super().__init__(*arguments, data=data)
        self.dynamodb_port = processes.free_port()
        self.dynamodb_url = f"http://127.0.0.1:{self.dynamodb_port}"

    @property
    def dynamodb_key(self) -> str:
        """Return the access key of the twin's DynamoDB; the twin must be running."""
        return twin_keys.credentials(self.dynamodb_url)["aws_access_key_id"]

    @property
    def locator(self) -> list[str]:
        return ["--endpoint-url", self.dynamodb_url]

    def options(self) -> list[str]:
        options = [*self.arguments, "--port", str(self.port)]
        options += ["--dynamodb-port", str(self.dynamodb_port)]
        if self._data is not None:
            options += ["--data", str(self._data)]
        return options
