"""DynamoDB Local, AWS's own engine: downloaded once by Maven, run by Java.

The engine is stored in the user's cache folder and shared by every checkout. It listens on every
interface and checks no credentials, so it must not contain real data.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import tempfile
from pathlib import Path

from tidings.server import processes
from tidings.server.processes import Problem

VERSION = "3.1.0"  # equals the version in the pom
START_S = 30.0  # the engine starts in 1.5 s; a loaded machine may need ten times that
CONNECT_EVERY_S = 0.02  # pause between attempts to connect to a child
FETCH_S = 300.0  # the time limit of the only download, of 48 MB
CACHE = Path.home() / ".cache" / "tidings" / "dynamodb-local" / VERSION
_HERE = Path(__file__).parent
_POM = _HERE / "dynamodb-local.pom.xml"
_SUMS = _HERE / "dynamodb-local.sha256"  # of all files from Maven, in the format of `sha256sum`


async def wait_until_open(port: int, timeout_s: float) -> None:
    """Return once the loopback *port* accepts connections.

    Raises:
        TimeoutError: no connection was accepted within *timeout_s*.
    """
    async with asyncio.timeout(timeout_s):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(CONNECT_EVERY_S)


class NoMaven(Problem):
    def __init__(self, detail: str) -> None:
        super().__init__(f"Maven is needed once to fetch DynamoDB Local ({detail})")


class WrongSum(Problem):
    def __init__(self, name: str) -> None:
        super().__init__(f"Maven fetched another {name} than the tested one; it was deleted")


class EngineFailed(Problem):
    def __init__(self, what: str, log: Path) -> None:
        super().__init__(f"DynamoDB Local {what}; its output is in {log}")


class DynamoDBLocal:
    """A running engine."""

    def __init__(self, child: processes.Child, port: int) -> None:
        self._child = child
        self.url = f"http://127.0.0.1:{port}"

    async def wait(self) -> int:
        """Wait until the engine has ended; return its exit code."""
        return await self._child.wait()

    async def stop(self) -> None:
        await self._child.end()


async def start(*, port: int, data: Path | None, log: Path) -> DynamoDBLocal:
    """Start the engine on *port* (0: a free port), in memory or in the folder *data*.

    Raises:
        NoMaven: the engine is not in the cache and Maven is missing or fails.
        WrongSum: see `fetch`.
        EngineFailed: Java is missing or too old, or the engine did not listen in time.
    """
    libraries = await fetch(log)
    port = port or processes.free_port()
    command = [
        "java",
        # Use a garbage collector with one thread, because the engine shares the machine with the
        # feed's processes. Keep the optimising compiler, which doubles the throughput of a busy
        # feed and does not slow the start.
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        f"-Dsqlite4java.library.path={libraries}",
        "-cp",
        f"{libraries}/*",
        "software.amazon.dynamodb.services.local.main.ServerRunner",
        *(["-inMemory"] if data is None else ["-dbPath", str(data)]),
        "-sharedDb",
        "-disableTelemetry",
        "-port",
        str(port),
    ]
    if shutil.which("java") is None:
        raise EngineFailed("needs Java 17 or newer", log)
    with log.open("ab") as output:
        child = await processes.start(command, output=output)
    engine = DynamoDBLocal(child, port)
    try:
        await wait_until_open(port, START_S)
    except TimeoutError:
        await engine.stop()
        raise EngineFailed(f"did not listen within {START_S:.0f} s", log) from None
    except BaseException:
        await engine.stop()
        raise
    return engine


async def fetch(log: Path, cache: Path = CACHE) -> Path:
    """Return the folder of the engine's jars; download them if they are missing.

    Raises:
        NoMaven: see `start`.
        WrongSum: Maven downloaded files that differ from the tested files.
    """
    if cache.is_dir():
        return cache
    maven = shutil.which("mvn")
    if maven is None:
        raise NoMaven("no `mvn` on the PATH")
    cache.parent.mkdir(parents=True, exist_ok=True)
    # The folder is renamed to the cache after the download, so an incomplete engine is never used.
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        jars, pom = Path(folder) / "jars", Path(folder) / "pom.xml"
        pom.write_bytes(_POM.read_bytes())
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        with log.open("ab") as output:
            child = await processes.start([maven, "-q", "-B", "-f", str(pom), *goal], output=output)
        try:
            code = await asyncio.wait_for(child.wait(), FETCH_S)
        finally:
            child.kill()
        if code != 0:
            raise NoMaven(f"`mvn` failed, see {log}")
        check_sums(jars)
        with contextlib.suppress(OSError):  # another process has finished its download first
            jars.rename(cache)
    return cache


def check_sums(jars: Path) -> None:
    """Check that *jars* contains exactly the tested files, byte for byte.

    Raises:
        WrongSum: the message names the first file that differs.
    """
    sums = _SUMS.read_text().split()
    wanted = dict(zip(sums[1::2], sums[::2], strict=True))
    actual = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in jars.iterdir()}
    for name in sorted({*wanted, *actual}):
        if actual.get(name) != wanted.get(name):
            raise WrongSum(name)
