"""DynamoDB Local, AWS's own engine: downloaded once by Maven, run by Java.

The engine is stored in the user's cache folder and shared by every checkout. It always listens on
every interface, but a client that does not send the random key sees an empty database.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from tidings.aws.config import twin_keys
from tidings.http.outbound.files import restrict
from tidings.server import processes
from tidings.server.processes import Problem

VERSION = "3.1.0"  # equals the version in the pom
START_S = 30.0  # the engine starts in 1.5 s; a loaded machine may need ten times that
FETCH_S = 300.0  # the time limit of the only download, of 48 MB

# The size of the access key, which cannot be guessed. The key is written in hex, because the engine
# accepts only letters and digits.
KEY_BYTES = 16
KEY_FILE = "access-key"  # the name of the file with the key, next to the database

_SHARED = "shared-local-instance"  # the name of the database in earlier releases of the twin
CACHE = Path.home() / ".cache" / "tidings" / "dynamodb-local" / VERSION
_POM = "dynamodb-local.pom.xml"
_SUMS = "dynamodb-local.sha256"  # the sums of all files from Maven, in the format of `sha256sum`


class NoJava(Problem):
    def __init__(self, detail: str) -> None:
        super().__init__(
            f"DynamoDB Local needs Java 17 or newer ({detail}); install Java, or name another"
            " DynamoDB with --endpoint-url"
        )


class NoMaven(Problem):
    def __init__(self, detail: str) -> None:
        super().__init__(
            f"Maven is needed once to fetch DynamoDB Local ({detail}); install Maven, or name"
            " another DynamoDB with --endpoint-url"
        )


class WrongSum(Problem):
    def __init__(self, name: str, detail: str, wanted: str) -> None:
        super().__init__(
            f"Maven fetched files that differ from the tested DynamoDB Local: {name} has the"
            f" SHA-256 {detail}, not {wanted}. The files were deleted. Check the repositories that"
            " your Maven uses"
        )


class EngineFailed(Problem):
    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"DynamoDB Local {what}; its output is in {log}")


class DynamoDBLocal:
    """A running engine."""

    def __init__(self, child: processes.Child, port: int) -> None:
        self._child, self._port = child, port
        self.url = f"http://127.0.0.1:{port}"

    async def wait(self) -> int:
        """Wait until the engine has ended; return its exit code."""
        return await self._child.wait()

    async def stop(self) -> None:
        await self._child.end()
        twin_keys.forget(self._port)


async def start(*, port: int, data: Path | None, log: Path) -> DynamoDBLocal:
    """Start the engine on *port* (0: a free port), in memory or in the folder *data*.

    `twin_keys` stores the engine's access key for this user's programs.

    Raises:
        NoJava: Java is missing or too old.
        NoMaven: the engine is not in the cache and Maven is missing or fails.
        WrongSum: see `fetch`.
        EngineFailed: the engine ended, or did not listen in time.
    """
    java = shutil.which("java")
    if java is None:
        raise NoJava("no `java` on the PATH")
    libraries = await fetch(log)
    port = port or processes.free_port()
    twin_keys.publish(port, secrets.token_hex(KEY_BYTES) if data is None else _key_of(data))
    with log.open("ab") as output:
        child = await processes.start(_command(java, libraries, port, data), output=output)
    engine = DynamoDBLocal(child, port)
    try:
        await _wait_until_open(child, port, log)
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
        jars = Path(folder) / "jars"
        await _copy_dependencies(maven, Path(folder), jars, log)
        check_sums(jars)
        with contextlib.suppress(OSError):  # another twin has finished its download first
            jars.rename(cache)
    return cache


def check_sums(jars: Path) -> None:
    """Check that *jars* contains exactly the tested files, byte for byte.

    Raises:
        WrongSum: the message names the first file that differs.
    """
    sums = resources.files("tests.twin").joinpath(_SUMS).read_text().split()
    wanted = dict(zip(sums[1::2], sums[::2], strict=True))
    actual = {path.name: _sum(path) for path in jars.iterdir()}
    for name in sorted({*wanted, *actual}):
        if actual.get(name) != wanted.get(name):
            raise WrongSum(name, actual.get(name, "no file"), wanted.get(name, "no file"))


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _copy_dependencies(maven: str, folder: Path, jars: Path, log: Path) -> None:
    pom = folder / "pom.xml"
    pom.write_bytes(resources.files("tests.twin").joinpath(_POM).read_bytes())
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    with log.open("ab") as output:
        child = await processes.start([maven, "-q", "-B", "-f", str(pom), *goal], output=output)
    try:
        async with asyncio.timeout(FETCH_S):
            code = await child.wait()
    except TimeoutError:
        raise NoMaven(f"`mvn` did not finish within {FETCH_S:.0f} s, see {log}") from None
    finally:
        child.kill()
    if code != 0:
        raise NoMaven(f"`mvn` failed, see {log}")


def _key_of(data: Path) -> str:
    """Return the access key of the database in *data*.

    The key is created for a new database, and for a database of an earlier release, which has no
    key. The files of that database are renamed. If the process dies before all files are renamed,
    the next start renames the others before the engine starts.
    """
    file = data / KEY_FILE
    if not file.exists():
        twin_keys.write(file, secrets.token_hex(KEY_BYTES))
    key = file.read_text()
    # In reverse order, a journal is renamed before its database.
    for part in sorted(data.glob(f"{_SHARED}.db*"), reverse=True):
        restrict(part, 0o600)
        part.rename(data / part.name.replace(_SHARED, f"{key}_{twin_keys.REGION}"))
    return key


def _command(java: str, libraries: Path, port: int, data: Path | None) -> list[str]:
    where = ["-inMemory"] if data is None else ["-dbPath", str(data)]
    return [
        java,
        # Use a garbage collector with one thread, because the engine shares the machine with the
        # feed's processes. Keep the optimising compiler, which doubles the throughput of a busy
        # feed and does not slow the start.
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        f"-Dsqlite4java.library.path={libraries}",
        "-cp",
        f"{libraries}/*",
        "software.amazon.dynamodb.services.local.main.ServerRunner",
        *where,
        "-disableTelemetry",
        "-port",
        str(port),
    ]


async def _wait_until_open(child: processes.Child, port: int, log: Path) -> None:
    opened = asyncio.ensure_future(processes.wait_until_open(port, START_S))
    ended = asyncio.ensure_future(child.wait())
    await asyncio.wait((opened, ended), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if opened.done() and opened.exception() is None and child.exit_code is None:
        return
    opened.cancel()
    if b"UnsupportedClassVersionError" in log.read_bytes():
        raise NoJava("the `java` on the PATH is older")
    if child.exit_code is not None:
        raise EngineFailed(f"ended with exit code {child.exit_code}", str(log))
    raise EngineFailed(f"did not listen within {START_S:.0f} s", str(log))
