"""LocalStack on this machine, without Docker: the one way that these tests start it.

`running` starts it as a process; its environment in `build/localstack` has boto3 and AWS's runtime
client, and not Tidings, so that a function finds Tidings in its layers or not at all. DynamoDB is
DynamoDB Local, put where LocalStack looks for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infra import BUILD, builds
from infra.builds import PYTHON  # of LocalStack's image, too
from infra.emulator import COMPILED, answers, clients_of, free_port, run_process
from tests import runtime
from tests.twin import dynamodb_local
from tests.twin.dynamodb_local import NoMaven

START_S = 180  # three seconds on an idle machine; the first start compiles its modules
FOLDER = BUILD / "localstack"
JAVA_MIN = 17  # of DynamoDB Local 3, and of Spark 4
# The newest release, with older dependencies than it declares: with newer ones it does not start.
WANTED = (
    "localstack-core[runtime]==2026.3.0",
    "cbor2<5.8",
    "pyopenssl<25.4",
    "service-identity",
    "localstack-twisted<26",
)
RUNTIME_CLIENT = "awslambdaric"
PLUGIN = Path(__file__).parent / "plugin"
EXECUTOR = "tidings"  # of our executor, in LocalStack's settings

JAVA = "usr/lib/localstack/java/21/bin/java"
_ENGINE = "usr/lib/localstack/dynamodb-local/2"
# LocalStack names the jar and its own patch of it; the options after them are the engine's.
_SHIM = """#!/bin/sh
while [ "$1" != -jar ]; do shift; done
shift 2
echo $$ > '{pid}'
exec '{java}' -XX:+UseSerialGC -Xshare:auto -Dsqlite4java.library.path='{jars}' \\
    -cp '{jars}/*' software.amazon.dynamodb.services.local.main.ServerRunner \\
    -disableTelemetry "$@"
"""
_METADATA = "Metadata-Version: 2.1\nName: tidings-localstack\nVersion: 1\n"
_ENTRY_POINTS = f"""[localstack.lambda.runtime_executor]
{EXECUTOR} = tidings_localstack.executor:TidingsExecutorPlugin
"""


class Missing(Exception):
    """One sentence about a tool that is not on this machine."""


class NotUp(Exception):
    """LocalStack did not come up."""


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Start a fresh LocalStack; yield the variables that direct AWS clients to it, and stop it.

    Raises:
        Missing: Python 3.13, Java or Maven, or a network the first time.
        NotUp: see there.
    """
    python, folder = interpreter(), FOLDER / "run"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    pid, log = folder / "engine.pid", folder / "localstack.log"
    engine(folder / "files", pid)
    url = f"http://127.0.0.1:{free_port()}"
    command = [str(python), "-m", "localstack.runtime.main"]
    try:
        with run_process(command, _environment(folder, url), folder, log):
            if not answers(f"{url}/_localstack/health", START_S):
                raise NotUp(f"LocalStack was not up after {START_S} s; see {log}")
            yield clients_of(url)
    finally:
        _end(pid)


def _environment(folder: Path, url: str) -> dict[str, str]:
    own = {
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(folder / "files"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": plugin(folder),
        "GATEWAY_LISTEN": url.removeprefix("http://"),
        "DNS_ADDRESS": "0",  # a name server of its own would need the port of the machine's
        "DISABLE_EVENTS": "1",  # it would report each call to its makers
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "LAMBDA_RUNTIME_EXECUTOR": EXECUTOR,
        # Streams of DynamoDB Local itself; the first version copies them through Kinesis.
        "PROVIDER_OVERRIDE_DYNAMODB": "v2",
        "PROVIDER_OVERRIDE_DYNAMODBSTREAMS": "v2",
        "DYNAMODB_IN_MEMORY": "1",
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | own


def interpreter() -> Path:
    """The Python of LocalStack's environment, which is created first if it is missing or different.

    Raises:
        Missing: Python 3.13, or the network.
    """
    folder = FOLDER / "environment"
    wanted = [*WANTED, *builds.pin_versions((RUNTIME_CLIENT, *COMPILED))]
    stamp, made = folder / "tidings.txt", "\n".join([PYTHON, *wanted])
    if not (stamp.is_file() and stamp.read_text() == made):
        _run([_python(), "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
        _run([*pip, "--disable-pip-version-check", *wanted])
        stamp.write_text(made)
    return folder / "bin" / "python"


def packages() -> Path:
    """Return the folder of the packages in LocalStack's environment."""
    return interpreter().parents[1] / "lib" / f"python{PYTHON}" / "site-packages"


def engine(files: Path, pid: Path) -> None:
    """Put DynamoDB Local below *files*, LocalStack's file system; running, its number is in *pid*.

    Raises:
        Missing: Java or Maven.
    """
    java = _java()
    try:
        jars = asyncio.run(dynamodb_local.fetch(FOLDER / "maven.log"))
    except NoMaven as problem:
        raise Missing(str(problem).partition(";")[0]) from None
    shim = files / JAVA
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(java=java, jars=jars, pid=pid))
    shim.chmod(0o755)
    (files / _ENGINE).mkdir(parents=True)
    (jar,) = jars.glob("DynamoDBLocal-*.jar")
    (files / _ENGINE / "DynamoDBLocal.jar").symlink_to(jar)


def plugin(files: Path) -> str:
    """The import path by which LocalStack finds our executor; its name is left below *files*."""
    about = files / "plugin" / "tidings_localstack-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(_METADATA)
    (about / "entry_points.txt").write_text(_ENTRY_POINTS)
    return f"{about.parent}:{PLUGIN}"


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise Missing(f"DynamoDB Local needs Java {JAVA_MIN} or newer; java was not found")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = said.partition('"')[2].partition(".")[0]
    if not version.isdigit() or int(version) < JAVA_MIN:
        raise Missing(f"DynamoDB Local needs Java {JAVA_MIN} or newer; {java} is older")
    return java


def _python() -> str:
    if found := runtime.python():
        return found
    raise Missing(
        f"LocalStack {WANTED[0].partition('==')[2]} needs Python {PYTHON}: install python{PYTHON}"
        f" (pyenv install {PYTHON}, uv python install {PYTHON})"
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Missing(f"LocalStack was not installed (it takes a network once): {last}")


def _end(pid: Path) -> None:
    """DynamoDB Local is in no process group of LocalStack's, and outlives one that was killed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIGKILL)
