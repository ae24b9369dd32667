"""Run the functions until a signal: `python -m tests.twin --port 8042`, as `tests.twin.Twin` does.

The options are those of `tidings serve`, except for --data. DynamoDB Local needs Java 17, and Maven
the first time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path

import click

from infra import FUNCTIONS
from tests.twin import dynamodb_local, environment, forks, store, workers
from tests.twin.environment import Endpoints, Options
from tests.twin.http_gateway import HttpGateway
from tests.twin.lambda_api import ConnectionsApi, LambdaApi, LoopbackServer
from tests.twin.socket_gateway import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SocketGateway
from tests.twin.streams import PollInterval, StreamPoller
from tests.twin.workers import WORKERS_MAX, Functions, Pool, StreamFunction
from tidings.aws.config import deployment
from tidings.aws.config.deployment import StreamSource
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.core.settings.profiles import ProfileStore
from tidings.http.asgi import Message, Receive, Send
from tidings.server import command, feed_options, http_server, processes
from tidings.server.http_server import KnownProxies
from tidings.server.processes import Problem
from tidings.server.sockets import PATH

STOP_S = 60.0  # the longest time from a signal to the end, in which DynamoDB Local is also stopped
GRACE_S = 1  # how long a stopping twin waits for open requests; an event stream would not end
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@command.host_options
@click.option("--endpoint-url", help="Use this DynamoDB instead of starting DynamoDB Local.")
@click.option("--dynamodb-port", default=0, help="Port of DynamoDB Local; 0: a free port.")
@click.option("--data", type=_FOLDER, help="Folder of the feed and the logs.")
@click.option("--tables-in-memory", is_flag=True, help="Keep tables in memory, not in --data.")
@click.option("--functions", type=_FOLDER, default=FUNCTIONS, help="Folder of the handlers.")
def main(settings: tuple[str, ...], **options: object) -> None:
    try:
        command.run(run, "twin", Options(settings=command.pairs(settings), **options), STOP_S)  # type: ignore[arg-type]
    except Problem as problem:
        sys.exit(str(problem))


async def run(options: Options, ready: Callable[[str, str], None], stopped: asyncio.Event) -> None:
    """Serve until *stopped*; call *ready* with the HTTP and WebSocket URLs once the twin is ready.

    Raises:
        Problem: the twin cannot start.
    """
    change = feed_options.profile_change(options)
    async with contextlib.AsyncExitStack() as stack:
        listeners = processes.listen(options.host, options.port)
        folder = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        # The twin's own warnings and errors are also written to the functions' log.
        logging.basicConfig(filename=folder / "functions.log", level=logging.WARNING)
        await stack.enter_async_context(forks.prepared())
        url = options.endpoint_url
        if url is None:
            on_disk = options.data is not None and not options.tables_in_memory
            data = folder / "dynamodb" if on_disk else None
            if data is not None:
                data.mkdir(exist_ok=True)
            engine = await dynamodb_local.start(
                port=options.dynamodb_port, data=data, log=folder / "dynamodb.log"
            )
            stack.push_async_callback(engine.stop)
            url = engine.url
        await asyncio.to_thread(_prepare, url, options, change)
        await _compose(stack, options, folder / "functions.log", url, listeners)
        host, port = listeners[0].getsockname()[:2]
        ready(f"http://{host}:{port}/", f"ws://{host}:{port}{PATH}")
        await stopped.wait()


def _prepare(url: str, options: Options, change: feed_options.Change | None) -> None:
    client = store.tables_client(url)
    store.create_tables(client)
    settings = environment.parse_options(options)
    store.create_coordination(url, settings.coordinator)
    store.publish_feeds(client, settings.feeds, settings.sources)
    if options.endpoint_url is None:
        store.free_leases(client, settings.feeds, settings.sources)
    if change is not None:
        profiles = ProfileStore(DynamoDBRecords(client, store.table_name("control")))
        feed_options.apply_change(profiles, settings.feeds, change)


async def _compose(
    stack: contextlib.AsyncExitStack,
    options: Options,
    log: Path,
    url: str,
    listeners: Sequence[socket.socket],
) -> None:
    """Start all parts between DynamoDB at *url* and the public port."""
    apis = LoopbackServer()
    await apis.start()
    stack.push_async_callback(apis.stop)
    endpoints = Endpoints(url, f"http://127.0.0.1:{apis.port}")
    programs = [(f, environment.program(f, options, endpoints)) for f in deployment.FUNCTIONS]
    settings = environment.parse_options(options)
    interval = PollInterval()
    streams = {f.name: StreamFunction(each, log) for f, each in programs if f.streams}
    bounds = workers.relay_workers(settings.sources)
    pools = {
        f.name: Pool(each, log, workers_max=bounds.get(f.name, WORKERS_MAX))
        for f, each in programs
        if not f.streams
    }
    functions = Functions(pools, interval.stir)
    for stop in (functions.stop, *(each.stop for each in streams.values())):
        stack.push_async_callback(stop)
    sockets = SocketGateway(deployment.SOCKET_ROUTES, functions.invoke)
    invocations = LambdaApi([*pools], functions.invoke)
    stack.push_async_callback(invocations.stop)
    apis.serve(invocations.handle, ConnectionsApi(sockets).handle)
    http = HttpGateway(
        deployment.HTTP_ROUTES,
        functions.invoke,
        {name: each.proxy for name, each in streams.items()},
        origins=settings.cors_origins,
    )
    await stack.enter_async_context(serving_apis(http, sockets, listeners))
    work = [_follow(url, source, functions, interval) for source in deployment.STREAM_SOURCES]
    work += [workers.begin_relay(feed, functions.invoke) for feed in settings.sources]
    work += [workers.run_schedule(each, functions.invoke) for each in deployment.SCHEDULES]
    # The server of `list` is not started before its first request: few tests use it.
    work += [streams[f.name].start() for f, _ in programs if f.endless]
    for each in work:
        await stack.enter_async_context(_background(each))


async def _follow(
    url: str, source: StreamSource, functions: Functions, interval: PollInterval
) -> None:
    """Deliver the records of the table of *source*."""
    table = store.tables_client(url).describe_table(TableName=store.table_name(source.table))
    await StreamPoller(
        source=source,
        client=store.streams_client(url),
        stream_arn=table["Table"]["LatestStreamArn"],
        deliver=functools.partial(functions.invoke, source.function),
        interval=interval,
    ).run()


@contextlib.asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving_apis(
    http: HttpGateway, sockets: SocketGateway, listeners: Sequence[socket.socket]
) -> AsyncIterator[None]:
    """Serve both APIs on *listeners*."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        gateway = sockets.serve if scope["type"] == "websocket" else http.serve
        await gateway(scope, receive, send)

    async with http_server.serving(
        KnownProxies(app, (), every=False),  # clients connect directly, so no proxy is trusted
        *listeners,
        grace_s=GRACE_S,
        # Uvicorn passes the pair to websockets, which limits messages and frames separately.
        ws_max_size=(MESSAGE_BYTES_MAX, FRAME_BYTES_MAX),
        # API Gateway sends no pings, so it does not disconnect a client that answers pings late.
        ws_ping_interval=None,
        ws_per_message_deflate=False,
    ):
        try:
            yield
        finally:
            await sockets.stop()


if __name__ == "__main__":
    main()
