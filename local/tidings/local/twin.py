"""Composition root: starts every part in its order and ends them in the reverse one."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import IO

from tidings.aws import blueprint
from tidings.aws.blueprint import StreamSource
from tidings.local import (
    dynamodb_local,
    engine,
    environment,
    listening,
    owner,
    processes,
    public_server,
    schedules,
    stream_records,
    tables,
)
from tidings.local.connections_api import ConnectionsApi
from tidings.local.environment import Places
from tidings.local.http_gateway import HttpGateway
from tidings.local.internal_apis import InternalApis
from tidings.local.lambda_api import LambdaApi
from tidings.local.options import Options
from tidings.local.problems import DataInUse, EngineFailed
from tidings.local.runtime_api import Answer
from tidings.local.socket_gateway import PATH, SocketGateway
from tidings.local.stream_batches import Batch, Condition
from tidings.local.stream_function import StreamFunction
from tidings.local.stream_poller import StreamPoller
from tidings.local.stream_records import Shard
from tidings.local.workers import Functions, Pool, Program

TAIL_EVERY_S = 0.2  # --verbose: how far the terminal may be behind the log

Ready = Callable[[str, str], None]
Ended = Callable[[], Awaitable[int]]


async def run(options: Options, ready: Ready, stopped: asyncio.Event) -> None:
    """
    Serve until *stopped*; call *ready* with the HTTP and WebSocket addresses once it serves.

    Raises:
        Problem: it cannot start, or the store ended.
    """
    environment.check(options)
    change = owner.wanted(options)
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(listening.listen(options.host, options.port))
        folder = stack.enter_context(_folder(options.data))
        # What goes wrong between the parts is kept with the functions' own logs.
        logging.basicConfig(filename=folder / "functions.log", level=logging.WARNING)
        log = stack.enter_context((folder / "functions.log").open("ab"))
        if options.verbose:
            await stack.enter_async_context(_background(_tail(folder / "functions.log")))
        url, store_ended = await _store(stack, options, folder)
        await asyncio.to_thread(_prepare, url, options, change)
        await _compose(stack, options, folder, log, url, listener)
        http_url, ws_url = _addresses(listener)
        if options.demo or options.demo_repo:
            await _demo(stack, options, http_url, log)
        ready(http_url, ws_url)
        await _until_either(stopped, store_ended, folder)


async def _compose(
    stack: contextlib.AsyncExitStack,
    options: Options,
    folder: Path,
    log: IO[bytes],
    dynamodb_url: str,
    listener: socket.socket,
) -> None:
    """Everything between the store and the public port."""
    apis = InternalApis()
    await apis.start()
    stack.push_async_callback(apis.stop)
    places = Places(dynamodb_url, apis.url)
    programs = {f.name: environment.program(f, options, places) for f in blueprint.FUNCTIONS}
    functions, streams = _functions(programs, log)
    stack.push_async_callback(functions.stop)
    for stream in streams.values():
        stack.push_async_callback(stream.stop)
        stream.warm()
    sockets = SocketGateway(blueprint.SOCKET_ROUTES, functions.invoke)
    invocations = LambdaApi(functions.names, functions.invoke)
    stack.push_async_callback(invocations.stop)
    apis.serve(invocations.handle, ConnectionsApi(sockets).handle)
    http = HttpGateway(
        blueprint.HTTP_ROUTES,
        functions.invoke,
        streams,
        console=environment.find_repository() / "console",
        origins=environment.origins(options),
        prefix=environment.url_prefix(options),
    )
    await stack.enter_async_context(public_server.serving(http, sockets, listener))
    arns = await asyncio.to_thread(_stream_arns, dynamodb_url)
    for source in blueprint.STREAM_SOURCES:
        poller = StreamPoller(
            source,
            engine.streams_client(dynamodb_url),
            arns[source.table],
            _delivery(functions, source),
            _giving_up(folder / "discarded", programs[source.function]),
        )
        await stack.enter_async_context(_background(poller.run()))
    for schedule in blueprint.SCHEDULES:
        await stack.enter_async_context(_background(schedules.run(schedule, functions.invoke)))


def _functions(
    programs: dict[str, Program], log: IO[bytes]
) -> tuple[Functions, dict[str, StreamFunction]]:
    answering = [f.name for f in blueprint.FUNCTIONS if not f.streams]
    streaming = [f.name for f in blueprint.FUNCTIONS if f.streams]
    return (
        Functions({name: Pool(programs[name], log) for name in answering}),
        {name: StreamFunction(programs[name], log) for name in streaming},
    )


def _delivery(functions: Functions, source: StreamSource) -> Callable[[bytes], Awaitable[Answer]]:
    async def deliver(payload: bytes) -> Answer:
        return await functions.invoke(source.function, payload)

    return deliver


def _giving_up(folder: Path, program: Program) -> Callable[[Shard, Batch, Condition], None]:
    def give_up(shard: Shard, batch: Batch, condition: Condition) -> None:
        stream_records.save_given_up(folder, shard, program.arn, batch, condition)

    return give_up


async def _store(
    stack: contextlib.AsyncExitStack, options: Options, folder: Path
) -> tuple[str, Ended | None]:
    """The store's address and, where it is ours, a way to wait for its end."""
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


def _prepare(url: str, options: Options, change: owner.Change | None) -> None:
    client = engine.tables_client(url)
    tables.create(client)
    tables.tell_feeds(client, environment.feeds(options))
    if options.endpoint_url is None:
        tables.free_leases(client, environment.feeds(options))
    if change is not None:
        owner.apply(client, environment.feeds(options), change)


def _stream_arns(url: str) -> dict[str, str]:
    """The stream of each table that has one."""
    client = engine.tables_client(url)
    return {
        table.name: client.describe_table(TableName=tables.name_of(table.name))["Table"][
            "LatestStreamArn"
        ]
        for table in blueprint.TABLES
        if table.stream
    }


async def _demo(
    stack: contextlib.AsyncExitStack, options: Options, url: str, log: IO[bytes]
) -> None:
    repository = options.demo_repo or environment.find_repository()
    command = [sys.executable, "-m", "tidings.local.demo", "--url", url, "--repo", str(repository)]
    child = await processes.start(command, output=log)
    stack.push_async_callback(child.end)


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """The folder for logs and given-up batches: *data*, or one that goes with the twin."""
    if data is None:
        with tempfile.TemporaryDirectory(prefix="tidings-") as name:
            yield Path(name)
        return
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataInUse(str(data)) from None
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
    """Copy what is appended to *log* to the terminal."""
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


def _addresses(listener: socket.socket) -> tuple[str, str]:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/", f"ws://{name}:{port}{PATH}"
