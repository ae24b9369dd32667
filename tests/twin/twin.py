"""The composition root: start all parts of the twin in order, and stop them in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import sys
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import IO

from tests.twin import dynamodb_local, environment, http_gateway, store, streams, workers
from tests.twin.clock import PollInterval
from tests.twin.dynamodb_local import EngineFailed
from tests.twin.environment import Endpoints
from tests.twin.http_gateway import HttpGateway
from tests.twin.internal_apis import ConnectionsApi, InternalApis, LambdaApi
from tests.twin.options import Options, table_producers
from tests.twin.socket_gateway import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SocketGateway
from tests.twin.streams import GiveUp, StreamPoller
from tests.twin.workers import WORKERS_MAX, Functions, Pool, Program, StreamFunction
from tidings.aws.config import deployment
from tidings.aws.config.deployment import StreamSource
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.core.errors import Rejected
from tidings.core.settings.profiles import ProfileStore
from tidings.http.asgi import Message, Receive, Send
from tidings.http.outbound.files import lock, restrict
from tidings.server import feed_options, http_server, processes
from tidings.server.http_server import HostCheck, KnownProxies
from tidings.server.processes import Problem
from tidings.server.sockets import PATH, refuse

TAIL_EVERY_S = 0.2  # the longest delay of a log line on the terminal with --verbose

Ready = Callable[[str, str], None]
Ended = Callable[[], Awaitable[int]]
GRACE_S = 1  # how long a stopping twin waits for open requests; an event stream would not end


class DataInUse(Problem):
    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder} is in use by another twin; stop it, or name another --data")


async def run(options: Options, ready: Ready, stopped: asyncio.Event) -> None:
    """Serve until *stopped*; call *ready* with the HTTP and WebSocket URLs once the twin is ready.

    Raises:
        Problem: the twin cannot start, or DynamoDB Local ended.
    """
    # Only this user may read the databases, logs and archives of the twin and its children.
    os.umask(0o077)
    environment.check(options)
    change = feed_options.profile_change(options)
    async with contextlib.AsyncExitStack() as stack:
        listeners = processes.listen(options.host, options.port)
        for listener in listeners:
            stack.enter_context(listener)
        folder = stack.enter_context(_folder(options.data))
        # The twin's own warnings and errors are also written to the functions' log.
        logging.basicConfig(filename=folder / "functions.log", level=logging.WARNING)
        log = stack.enter_context((folder / "functions.log").open("ab"))
        if options.verbose:
            await stack.enter_async_context(_background(_tail(folder / "functions.log")))
        url, store_ended = await _store(stack, options, folder)
        await asyncio.to_thread(_prepare, url, options, change)
        await _compose(stack, options, folder, log, url, listeners)
        host, port = listeners[0].getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        http_url, ws_url = f"http://{name}:{port}/", f"ws://{name}:{port}{PATH}"
        if options.demo or options.demo_repo:
            child = await processes.start_demo(options.demo_repo, http_url, log)
            stack.push_async_callback(child.end)
        ready(http_url, ws_url)
        await _until_either(stopped, store_ended, folder)


async def _compose(
    stack: contextlib.AsyncExitStack,
    options: Options,
    folder: Path,
    log: IO[bytes],
    dynamodb_url: str,
    listeners: Sequence[socket.socket],
) -> None:
    """Start all parts between DynamoDB and the public port."""
    apis = InternalApis()
    await apis.start()
    stack.push_async_callback(apis.stop)
    endpoints = Endpoints(dynamodb_url, apis.url, apis.token)
    deployed = environment.functions(options)
    programs = {f.name: environment.program(f, options, endpoints) for f in deployed}
    interval = PollInterval()
    settings = environment.parse_options(options)
    pools, streams = _functions(programs, log, workers.relay_workers(settings.sources))
    functions = Functions(pools, interval.stir)
    stack.push_async_callback(functions.stop)
    for each in streams.values():
        stack.push_async_callback(each.stop)
    for function in deployed:
        if function.endless:  # the function `list` is not warmed, because most twins never use it
            streams[function.name].warm()
    sockets = SocketGateway(deployment.SOCKET_ROUTES, functions.invoke)
    invocations = LambdaApi(functions.names, functions.invoke)
    stack.push_async_callback(invocations.stop)
    apis.serve(invocations.handle, ConnectionsApi(sockets).handle)
    http = HttpGateway(
        deployment.HTTP_ROUTES,
        functions.invoke,
        {name: each.proxy for name, each in streams.items()},
        console=processes.find_installed().console,
        origins=settings.cors_origins,
        prefix=settings.url_prefix,
    )
    host_check = environment.host_check(options)
    await stack.enter_async_context(serving_apis(http, sockets, listeners, host_check))
    await _follow_all(stack, options, folder, dynamodb_url, programs, functions, interval)
    for feed in settings.sources:
        await stack.enter_async_context(_background(workers.begin_relay(feed, functions.invoke)))
    for schedule in deployment.SCHEDULES:
        await stack.enter_async_context(
            _background(workers.run_schedule(schedule, functions.invoke))
        )


def _functions(
    programs: Mapping[str, Program], log: IO[bytes], workers: Mapping[str, int]
) -> tuple[dict[str, Pool], dict[str, StreamFunction]]:
    streaming = {f.name for f in deployment.FUNCTIONS if f.streams}
    return (
        {
            name: Pool(program, log, workers_max=workers.get(name, WORKERS_MAX))
            for name, program in programs.items()
            if name not in streaming
        },
        {name: StreamFunction(programs[name], log) for name in streaming},
    )


async def _follow_all(
    stack: contextlib.AsyncExitStack,
    options: Options,
    folder: Path,
    url: str,
    programs: Mapping[str, Program],
    functions: Functions,
    interval: PollInterval,
) -> None:
    """Deliver the records of each table that has a stream."""
    followed = [(store.table_name(source.table), source) for source in deployment.STREAM_SOURCES]
    followed += [(each.table, each.source) for each in table_producers(options)]
    for table, source in followed:
        function_arn = programs[source.function].arn
        give_up = functools.partial(streams.save_given_up, folder / "discarded", function_arn)
        following = _follow(url, table, source, functions, give_up, interval)
        await stack.enter_async_context(_background(following))


async def _follow(
    url: str,
    table: str,
    source: StreamSource,
    functions: Functions,
    give_up: GiveUp,
    interval: PollInterval,
) -> None:
    arn = await store.stream_of(url, table)
    deliver = functools.partial(functions.invoke, source.function)
    client = await asyncio.to_thread(store.streams_client, url)
    await StreamPoller(
        source=source,
        client=client,
        stream_arn=arn,
        deliver=deliver,
        give_up=give_up,
        interval=interval,
    ).run()


async def _store(
    stack: contextlib.AsyncExitStack, options: Options, folder: Path
) -> tuple[str, Ended | None]:
    """Return DynamoDB's URL and, if the twin started DynamoDB, a function that awaits its end."""
    if options.endpoint_url is not None:
        return options.endpoint_url, None
    data = None
    if options.data is not None:
        data = folder / "dynamodb"
        data.mkdir(exist_ok=True)
    store = await dynamodb_local.start(
        port=options.dynamodb_port, data=data, log=folder / "dynamodb.log"
    )
    stack.push_async_callback(store.stop)
    return store.url, store.wait


def _prepare(url: str, options: Options, change: feed_options.Change | None) -> None:
    client = store.tables_client(url)
    store.create_tables(client)
    settings = environment.parse_options(options)
    store.create_coordination(url, settings.coordinator)
    store.publish_feeds(client, settings.feeds, settings.sources)
    if options.endpoint_url is None:
        store.free_follower_leases(client, settings.feeds)
        store.free_relays(client, settings.sources)
    if change is not None:
        profiles = ProfileStore(DynamoDBRecords(client, store.table_name("control")))
        feed_options.apply_change(profiles, settings.feeds, change)


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Yield the folder for logs and discarded batches: *data*, or a temporary folder."""
    if data is None:
        with tempfile.TemporaryDirectory(prefix="tidings-") as name:
            yield Path(name)
        return
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    restrict(data, 0o700)  # only the owner may read the data, even in an existing folder
    with (data / "lock").open("w") as file:
        try:
            is_locked = lock(file)
        except OSError as error:
            rule = "name another --data"
            raise Problem(f"{data} cannot be locked ({error.strerror}); {rule}") from None
        if not is_locked:
            raise DataInUse(str(data))
        yield data.resolve()


@contextlib.asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _tail(log: Path) -> None:
    """Copy the lines appended to *log* to the terminal."""
    with log.open("rb") as file:
        file.seek(0, 2)
        while True:
            sys.stderr.buffer.write(file.read())
            sys.stderr.flush()
            await asyncio.sleep(TAIL_EVERY_S)


async def _until_either(stopped: asyncio.Event, ended: Ended | None, folder: Path) -> None:
    if ended is None:
        await stopped.wait()
        return
    stopping = asyncio.ensure_future(stopped.wait())
    ending = asyncio.ensure_future(ended())
    await asyncio.wait((stopping, ending), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    ending.cancel()
    if not stopped.is_set():
        raise EngineFailed("ended by itself", str(folder / "dynamodb.log"))


@contextlib.asynccontextmanager
async def serving_apis(
    http: HttpGateway,
    sockets: SocketGateway,
    listeners: Sequence[socket.socket],
    allowed: HostCheck,
) -> AsyncIterator[None]:
    """Serve both APIs on *listeners*, to the hosts and origins that are *allowed*."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            allowed.check(scope)
        except Rejected as error:
            await _refuse(scope, receive, send, error)
            return
        gateway = sockets.serve if scope["type"] == "websocket" else http.serve
        await gateway(scope, receive, send)

    # Uvicorn passes the pair to websockets, which limits messages and frames separately.
    size_max = MESSAGE_BYTES_MAX, FRAME_BYTES_MAX
    async with http_server.serving(
        KnownProxies(app, (), every=False),  # clients connect directly, so no proxy is trusted
        *listeners,
        grace_s=GRACE_S,
        ws_max_size=size_max,
        # API Gateway sends no pings, so it does not disconnect a client that answers pings late.
        ws_ping_interval=None,
        ws_per_message_deflate=False,
    ):
        try:
            yield
        finally:
            await sockets.stop()


async def _refuse(scope: Message, receive: Receive, send: Send, error: Rejected) -> None:
    refusal = http_gateway.refuse(error)
    if scope["type"] == "websocket":
        await receive()
        await refuse(send, refusal.status, refusal.body.decode())
    else:
        await http_gateway.respond(send, refusal)
