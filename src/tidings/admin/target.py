"""Select a feed: of a stage on AWS, of a server, or at the address of a DynamoDB."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.aws.config import stages
from tidings.aws.effects import now_ms
from tidings.client.cli.options import (
    URL_VARIABLE,
    Access,
    Command,
    context_feed_option,
    context_option,
    data_option,
    endpoint_option,
    is_given,
    locate,
    password_options,
    stage_option,
    timeout_option,
    user_name,
)
from tidings.client.cli.render import failures, printable
from tidings.client.errors import Refused
from tidings.core.changeagent.documents import OperatorDocuments
from tidings.core.errors import StorageFailed, TidingsError, Unavailable
from tidings.core.model.feeds import DEFAULT_FEED, HOST, check_name
from tidings.core.records import RecordStore
from tidings.core.settings.profiles import ProfileStore
from tidings.core.version import how_to_install
from tidings.http.request import Request
from tidings.http.wire import Declared, LocalCall, Routes
from tidings.server import operating
from tidings.server.local import LocalAdmin
from tidings.server.processes import Problem

if TYPE_CHECKING:
    from botocore.config import Config  # noqa: TID251 see `_boto3`

Find = Callable[[str, str | None, str | None], object]
FoundIn = Callable[[str, Any], object]
Sent = Mapping[str, Any]
StoreRoutes = Callable[[RecordStore], Routes]
Opened = Callable[[Path], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Stored:
    """The feed with the key *feed*, of which *routes* call the services on its stores.

    It is a `Managed`, and its own `Transport`. *operator* has all rights.
    """

    feed: str
    routes: Routes
    operator: str = field(default_factory=user_name)
    timeout_s: float | None = None

    @contextmanager
    def asking(self) -> Iterator[Stored]:
        yield self

    def call(self, route: Declared, names: Sent, given: Sent, headers: Sent | None = None) -> Any:
        """Return the answer of *route*, without a check of rights."""
        unused: Any = None  # the feed has been found
        call = LocalCall(Request("", "", "", parameters=names), unused, self.operator)
        call.feed = self.feed
        return self.routes.perform(route.name, call, given)


@dataclass(frozen=True, slots=True)
class InFolder:
    """The feed *feed* of the server with the data folder *folder*, running or stopped.

    It is a `Managed`, and its own `Transport`. *operator* has all rights.
    """

    feed: str
    folder: Path
    operator: str = field(default_factory=user_name)
    timeout_s: float | None = None

    @contextmanager
    def asking(self) -> Iterator[InFolder]:
        with failures(), one_sentence_errors():
            try:
                yield self
            except Refused as error:
                raise click.ClickException(printable(error.message)) from None

    def call(self, route: Declared, names: Sent, given: Sent, headers: Sent | None = None) -> Any:
        """Return the answer of *route*, without a check of rights."""
        from tidings.client.retries import error_of  # commands for a stage do not need it

        lower = {name.lower(): value for name, value in (headers or {}).items()}
        sent = {"names": names, "given": given, "headers": lower, "operator": self.operator}
        status, body = operating.perform(self.folder, route.function.__qualname__, **sent)
        if status >= 400:
            raise error_of(status, body.encode(), "")
        return json.loads(body)


def feed_options(
    find: Find,
    found_in: FoundIn | None = None,
    opened: Opened = nullcontext,
    *,
    of_host: bool = False,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a place to a command that receives one *target*.

    The options are --feed, --stage, --context and --endpoint-url. Without an option, the stage and
    the feed are those of the current context. *find* creates the target from the feed, the stage
    and the endpoint, of which one is None. With *found_in*, the command also has --data, and
    *found_in* creates the target from that folder, or from the result of *opened*. With *of_host*,
    the command also has --host, for which the feed of the target is `HOST`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_target(
            feed: str | None,
            stage: str | None,
            context: str | None,
            endpoint_url: str | None,
            data: Path | None = None,
            host: bool = False,
            **others: Any,
        ) -> None:
            if host and is_given("feed"):
                raise click.UsageError("name either a feed with --feed or the host with --host")
            given = sum(place is not None for place in (stage, endpoint_url, data, context))
            if given > 1:
                raise click.UsageError(_PLACES)
            if given == 0 or context is not None:
                stage, feed = _of_context(context, feed)
            with one_sentence_errors():
                name = HOST if host else check_name(feed or DEFAULT_FEED)
                if data is None or found_in is None:
                    command(target=find(name, stage, endpoint_url), **others)
                    return
                with opened(data) as store:
                    command(target=found_in(name, store), **others)

        of_server = (data_option,) if found_in else ()
        all_of_it = (host_option,) if of_host else ()
        places = (*of_server, endpoint_option, context_option, stage_option)
        for option in (*places, *all_of_it, context_feed_option):
            with_target = option(with_target)
        return with_target

    return decorate


_PLACES = "name one of --stage, --context, --data for a server, and --endpoint-url for a DynamoDB"


def _of_context(name: str | None, feed: str | None) -> tuple[str, str]:
    """Return the stage and the feed of the context *name*, or of the current context.

    The command needs the stores of the feed, so it cannot use a context with an address.
    """
    location = locate(name, {})
    if not location.stage:
        reason = f"; {location.source} has no stage" if location.is_given else ""
        raise click.UsageError(f"{_PLACES}{reason}")
    return location.stage, location.feed(feed)


host_option = click.option(
    "--host", is_flag=True, help="All feeds of the host instead of one feed."
)


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Report errors in one sentence, without a traceback."""
    try:
        yield
    except StorageFailed as error:
        raise click.ClickException(str(error)) from None
    except Unavailable as error:
        raise click.ClickException(f"the store did not answer ({error}); try again") from None
    except (TidingsError, stages.NoStage, Problem) as error:
        raise click.ClickException(str(error)) from None
    except Exception as error:
        if _is_of_aws(error):
            raise click.ClickException(str(error)) from None
        raise


def _is_of_aws(error: Exception) -> bool:
    """Return True if boto3, which may be missing, raised *error*."""
    if "botocore" not in sys.modules:
        return False
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 see `_boto3`

    return isinstance(error, BotoCoreError | ClientError)


def _boto3() -> Any:
    """Return boto3, which uses the operator's own credentials and profile."""
    try:
        import boto3  # noqa: TID251
    except ImportError:
        raise click.ClickException(
            "--stage and --endpoint-url need boto3, which is not installed here;"
            f" {how_to_install('aws')}"
        ) from None
    return boto3


def _find(routes: StoreRoutes, feed: str, stage: str | None, endpoint_url: str | None) -> Stored:
    """Return the *routes* on the control table of a stage or endpoint; check that it has *feed*."""
    deployed = frozenset({feed})
    if stage is None:
        client = endpoint_client(str(endpoint_url))
        table = f"{stages.stack_name(stages.LOCAL_STAGE)}-control"
    else:
        outputs = stages.find(stage, _boto3().client("cloudformation"))
        deployed = outputs.feeds
        client, table = _boto3().client("dynamodb"), outputs.control_table
    from tidings.aws.dynamodb.records import DynamoDBRecords, find_key

    key = feed if feed == HOST else find_key(client, table, feed, deployed)
    return Stored(key, routes(DynamoDBRecords(client, table)))


def local_admin(records: RecordStore) -> LocalAdmin:
    return LocalAdmin(ProfileStore(records), OperatorDocuments(records), now_ms)


def stored_options(
    routes: StoreRoutes, *, of_host: bool = False
) -> Callable[[Declared], Callable[[Command], Command]]:
    """Return the `placed` of commands (`resources`) that call *routes* on the stores of a feed.

    If the operation has a route, the command also has the options of an address.
    """

    def placed(route: Declared) -> Callable[[Command], Command]:
        def decorate(command: Command) -> Command:
            @functools.wraps(command)
            def with_place(target: Stored | InFolder, **others: Any) -> None:
                operator = others.get("by") or target.operator
                command(feed=replace(target, operator=operator), **others)

            find = functools.partial(_find, routes)
            stored = feed_options(find, InFolder, of_host=of_host)(with_place)
            return stored if route.is_local else _or_address(stored, command)

        return decorate

    return placed


def _or_address(stored: Command, command: Command) -> Command:
    """Add the options of an address to *stored*; with an address, call *command* with `Access`."""

    @functools.wraps(command)
    def with_address(
        url: str, feed: str, host: bool, password: str, timeout_s: float | None, **others: Any
    ) -> None:
        if "by" in others and is_given("by"):
            raise click.UsageError("--by is not for --url: the creator is the password's key")
        reached = Access(url, feed, password, timeout_s)
        command(feed=reached, host_=True if host else None, **others)

    asked = password_options(with_address)

    @functools.wraps(stored)
    def with_place(url: str | None, feed: str | None, context: str | None, **others: Any) -> None:
        is_stored = any(others[name] for name in ("stage", "endpoint_url", "data"))
        if url and is_stored:
            raise click.UsageError("name the keys once: by --url, or as the other options do")
        location = None if is_stored else locate(context, {"--url": url})
        address = location is not None and location.url
        for name in _STORED if address else _ASKED:
            del others[name]
        if location is not None and address:
            asked(url=address, feed=location.feed(feed), **others)
        else:
            stored(feed=feed, context=context, **others)

    vars(with_place)["__click_params__"] += vars(asked)["__click_params__"][-2:]
    return click.option("--url", help=_URL_HELP)(timeout_option(with_place))


_STORED = ("stage", "endpoint_url", "data")
_ASKED = ("password_file", "password", "timeout_s")
_URL_HELP = f"Address of Tidings, to use its HTTP interface.  [env var: {URL_VARIABLE}]"


def endpoint_client(endpoint_url: str, config: Config | None = None) -> Any:
    """Return a client of the DynamoDB at *endpoint_url*, without the operator's credentials."""
    from botocore.config import Config as Made  # noqa: TID251 see `_boto3`

    config = config or Made(
        connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={}
    )
    known = stages.LOCAL_CREDENTIALS
    return _boto3().client("dynamodb", endpoint_url=endpoint_url, config=config, **known)


def addresses(stage: str) -> stages.Addresses:
    """Return the addresses of *stage*.

    Raises:
        ClickException: the stage does not exist, or AWS cannot be queried.
    """
    with one_sentence_errors():
        return stages.addresses(stage, _boto3().client("cloudformation"))
