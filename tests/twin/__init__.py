"""A fixture: the deployed functions on one machine, as on AWS, without an AWS account.

The fixture emulates the services that call the functions and are called by them. The functions run
unchanged, in processes under AWS's runtime client; their tables are in DynamoDB Local. Nothing here
is protected from other users of the machine.

    environment     the environment variables of a function
    dynamodb_local  DynamoDB Local: fetched, started, stopped; `store`: the tables in it
    workers         worker processes, the server of streaming functions, schedules
    lambda_api      the Runtime API of a worker; the APIs that functions call
    http_gateway    the HTTP API; `socket_gateway`: the WebSocket API
    streams         event source mappings: readers of streams, batches, retries
"""

from __future__ import annotations

from pathlib import Path

from tidings.server import processes
from tidings.server.running import Server


class Twin(Server):
    """A `Server` that runs the functions, in memory unless *data* is given.

    After a restart, the twin has the same ports for HTTP and DynamoDB. With *tables_in_memory*, the
    tables are not in *data*, but the archive and the logs are. This needs half the time, because
    DynamoDB Local writes to the disk before it answers.
    """

    command = "twin"
    module = "tests.twin"

    def __init__(
        self, *arguments: str, data: Path | None = None, tables_in_memory: bool = False
    ) -> None:
        super().__init__(*arguments, data=data)
        self._tables_in_memory = tables_in_memory
        self.dynamodb_port = processes.free_port()
        self.dynamodb_url = f"http://127.0.0.1:{self.dynamodb_port}"

    @property
    def locator(self) -> list[str]:
        return ["--endpoint-url", self.dynamodb_url]

    def options(self) -> list[str]:
        options = [*self.arguments, "--port", str(self.port)]
        options += ["--dynamodb-port", str(self.dynamodb_port)]
        options += ["--tables-in-memory"] if self._tables_in_memory else []
        return options if self._data is None else [*options, "--data", str(self._data)]
