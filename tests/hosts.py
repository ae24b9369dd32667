"""The host that a suite runs on: a server, or with `--on twin` a twin."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from tidings.client.cli.main import main
from tidings.server import operating
from tidings.server.running import Server
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteLog

if TYPE_CHECKING:
    import pytest

    from tests.twin import Twin

NAMES = ("server", "twin")


def host(name: str) -> type[Server]:
    if name == "server":
        return Server
    from tests.twin import Twin

    return Twin


def wanted(config: pytest.Config) -> type[Server]:
    """Return the class of the option's value."""
    return host(config.getoption("--on"))


def raise_floor(host: Server, feed: str, page: int) -> None:
    """Trim the log now, like retention. A server is stopped for it: its file has a single user."""
    if type(host) is not Server:
        from tests.twin import store
        from tidings.aws.dynamodb.log import DynamoDBLog

        client = store.tables_client(_twin(host).dynamodb_url)
        DynamoDBLog(client, store.table_name("log"), store.table_name("control")).raise_floor(
            feed, page
        )
        return
    host.stop()
    with contextlib.closing(Database(host.data / operating.FILE)) as database:
        SqliteLog(database).raise_floor(feed, page)
    host.start()


def set_lanes(host: Server, feed: str, lanes: int) -> None:
    """Set the number of lanes, like an operator."""
    command = ["feed", "set", *host.locator, "--feed", feed, "--push-lanes", str(lanes)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output


def make_key(host: Server, *options: str) -> str:
    """Create a key of the feed `main`, as the operator makes it."""
    done = CliRunner().invoke(main, ["keys", "create", *host.locator, *options, "--json"])
    assert done.exit_code == 0, done.output
    return str(json.loads(done.stdout)["key"])


def coordinator(host: Server) -> str:
    """Return the coordinator of the members that elect a leader with *host*, for a setting."""
    if type(host) is Server:
        return (host.data.parent / "seats.db").as_uri()
    return f"dynamodb://seats?endpoint={_twin(host).dynamodb_url}"


def _twin(host: Server) -> Twin:
    from tests.twin import Twin

    assert isinstance(host, Twin)
    return host
