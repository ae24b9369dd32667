"""Select a feed: of a stage on AWS, of a server, or at the address of a DynamoDB."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from tidings.aws.effects import now_ms
from tidings.client.cli import options
from tidings.client.cli.options import Access, Given, Location, adding, is_given, locate, user_name
from tidings.client.cli.render import failures, printable
from tidings.client.errors import Refused
from tidings.core.changeagent.documents import OperatorDocuments
from tidings.core.errors import StorageFailed, TidingsError, Unavailable
from tidings.core.model.feeds import HOST, check_name
from tidings.core.records import RecordStore
from tidings.core.settings.profiles import ProfileStore
from tidings.core.version import how_to_install
from tidings.http.request import Request
from tidings.http.wire import Declared, LocalCall, Routes
from tidings.server import operating
from tidings.server.local import LocalAdmin
from tidings.server.processes import Problem

if TYPE_CHECKING:
    from botocore.config import Config  # noqa: TID251 see `boto3`

    from tidings.aws.config import stages

Sent = Mapping[str, Any]
StoreRoutes = Callable[[RecordStore], Routes]


@dataclass(frozen=True)
class _Stored:
    """The feed *feed*, managed without rights: a `Managed`, and its own `Transport`."""

    feed: str
    operator: str = field(default_factory=user_name, kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)

    @contextmanager
    def asking(self) -> Iterator[Self]:
        with failures(), one_sentence_errors():
            try:
                yield self
            except Refused as error:
                raise click.ClickException(printable(error.message)) from None


@dataclass(frozen=True)
class Stored(_Stored):
    """The feed with the key *feed*, of which *routes* call the services on its stores."""

    routes: Routes

    def call(self, route: Declared, names: Sent, given: Sent, headers: Sent | None = None) -> Any:
        """Return the answer of *route*, without a check of rights."""
        unused: Any = None  # the feed has been found
        call = LocalCall(Request("", "", "", parameters=names), unused, self.operator)
        call.feed = self.feed
        return self.routes.perform(route.name, call, given)


@dataclass(frozen=True)
class InFolder(_Stored):
    """The feed *feed* of the server with the data folder *folder*, running or stopped."""

    folder: Path

    def call(self, route: Declared, names: Sent, given: Sent, headers: Sent | None = None) -> Any:
        """Return the answer of *route*, without a check of rights."""
        from tidings.client.retries import error_of  # commands for a stage do not need it

        lower = {name.lower(): value for name, value in (headers or {}).items()}
        sent = {"names": names, "given": given, "headers": lower, "operator": self.operator}
        status, body = operating.perform(self.folder, route.function.__qualname__, **sent)
        if status >= 400:
            raise error_of(status, body.encode(), "")
        return json.loads(body)


_PLACES = "name one of --stage, --context, --data for a server, and --endpoint-url for a DynamoDB"
STORES = (
    options.context_feed_option,
    options.stage_option,
    options.context_option,
    options.endpoint_option,
)


def name_in_stores(given: Given, at: Location) -> str:
    """Return the name of the feed of a command that needs its stores, so it can use no address.

    With --host, it is `HOST`.
    """
    if given.get("host") and is_given("feed"):
        raise click.UsageError("name either a feed with --feed or the host with --host")
    if not (at.stage or at.endpoint_url or at.data):
        reason = f"; {at.source} has no stage" if at.is_given else ""
        raise click.UsageError(f"{_PLACES}{reason}")
    return HOST if given.get("host") else check_name(at.feed(given["feed"]))


host_option = click.option(
    "--host", is_flag=True, help="All feeds of the host instead of one feed."
)


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Report errors in one sentence, without a traceback."""
    try:
        yield
    except (TidingsError, Problem) as error:
        is_silent = isinstance(error, Unavailable) and not isinstance(error, StorageFailed)
        text = f"the store did not answer ({error}); try again" if is_silent else str(error)
        raise click.ClickException(text) from None
    except Exception as error:
        if _is_of_aws(error):
            raise click.ClickException(str(error)) from None
        raise


def _is_of_aws(error: Exception) -> bool:
    """Return True if boto3, which may be missing, raised *error*."""
    if "botocore" not in sys.modules:
        return False
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 see `boto3`

    return isinstance(error, BotoCoreError | ClientError)


def boto3() -> Any:
    """Return boto3, which uses the operator's own credentials and profile."""
    try:
        import boto3 as found  # noqa: TID251
    except ImportError:
        raise click.ClickException(
            "--stage and --endpoint-url need boto3, which is not installed here;"
            f" {how_to_install('aws')}"
        ) from None
    return found


def _find(routes: StoreRoutes, feed: str, at: Location) -> Stored:
    """Return the *routes* on the control table of a stage or endpoint; check that it has *feed*."""
    from tidings.aws.config import stages
    from tidings.aws.dynamodb.records import DynamoDBRecords, find_key

    deployed = frozenset({feed})
    if at.endpoint_url:
        client = endpoint_client(at.endpoint_url)
        table = f"{stages.stack_name(stages.LOCAL_STAGE)}-control"
    else:
        outputs = stages.find(at.stage, boto3().client("cloudformation"))
        deployed = outputs.feeds
        client, table = boto3().client("dynamodb"), outputs.control_table
    key = feed if feed == HOST else find_key(client, table, feed, deployed)
    return Stored(key, routes(DynamoDBRecords(client, table)))


def local_admin(records: RecordStore) -> LocalAdmin:
    return LocalAdmin(ProfileStore(records), OperatorDocuments(records), now_ms)


def stored_options(
    routes: StoreRoutes, *, of_host: bool = False, over_http: bool = False
) -> Callable[[Declared], options.Decorator]:
    """Return the `placed` of commands (`resources`) that call *routes* on the stores of a feed.

    If the operation has a route, the command also has the options of an address. With *over_http*,
    it has them nevertheless, and must call another route (see `Call.over_http`).
    """

    def make(given: Given, others: Given) -> Given:
        at = locate(given)
        if at.url and "url" in given:
            if "by" in others and is_given("by"):
                raise click.UsageError("--by is not for --url: the creator is the password's key")
            if over_http and given.get("host"):
                raise click.UsageError("--host is not for --url: the host's settings have no route")
            feed, password = at.feed(given["feed"]), options.password_of(given, at)
            host = {"host_": True} if given.get("host") else {}
            return {"feed": Access(at.url, feed, password, given["timeout_s"]), **host}
        found: Stored | InFolder
        with one_sentence_errors():
            name = name_in_stores(given, at)
            found = InFolder(name, at.data) if at.data else _find(routes, name, at)
        return {"feed": replace(found, operator=others.get("by") or found.operator)}

    def placed(route: Declared) -> options.Decorator:
        feed, *places = STORES
        stored = (feed, *([host_option] if of_host else []), *places, options.data_option)
        if route.is_local and not over_http:
            return adding(make, *stored)
        return adding(make, _url_option, options.timeout_option, *options.password_options, *stored)

    return placed


_url_option = click.option(
    "--url",
    help=f"Address of Tidings, to use its HTTP interface.  [env var: {options.URL_VARIABLE}]",
)


def endpoint_client(endpoint_url: str, config: Config | None = None) -> Any:
    """Return a client of the DynamoDB at *endpoint_url*, without the operator's credentials."""
    from botocore.config import Config as Made  # noqa: TID251 see `boto3`

    from tidings.aws.config import stages

    config = config or Made(
        connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={}
    )
    known = stages.LOCAL_CREDENTIALS
    return boto3().client("dynamodb", endpoint_url=endpoint_url, config=config, **known)


def addresses(stage: str) -> stages.Addresses:
    """Return the addresses of *stage*.

    Raises:
        ClickException: the stage does not exist, or AWS cannot be queried.
    """
    from tidings.aws.config import stages

    with one_sentence_errors():
        return stages.addresses(stage, boto3().client("cloudformation"))
