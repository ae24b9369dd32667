"""The emulator MiniStack, which deploys the CDK's templates and runs without Docker.

`running` starts MiniStack, `adapt` changes an assembly to the subset that MiniStack can deploy, and
`serve_stage` runs the streaming function of a deployed stage. docs/operations/TESTING.md lists the
differences from AWS.

MiniStack is installed in a separate environment with boto3 and without Tidings. So the functions
find Tidings only in their layers, and MiniStack can pin its own version of botocore.

Some parts of a stage do not work on the emulator as deployed. The emulator does not support EMR
Serverless, CodeDeploy and Budgets, so Spark, canaries and budgets are left out. The wheels are for
the processor of AWS's machines, so compiled packages are replaced. The stack's WebSocket address is
a host of AWS, so the functions get the emulator's address instead. The emulator cannot run a Lambda
extension, which the function `stream` needs. So `serve_stage` runs the `run.sh` of this function
from the deployed assets, with the environment variables of the function. The HTTP API passes the
requests for the function `list`, which runs the same app, to that process. The feed is open, so
that the tests of the stage need no password.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3

from infra import BUILD
from infra.names import SOCKET_STAGE, STREAM_HANDLER, prefix
from infra.settings import Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import Addresses, stack_name

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# boto3 is installed, because Lambda's Python runtime has it.
PACKAGES = ("ministack==1.5.33", "boto3==1.43.106")
START_S = 30  # the longest wait for MiniStack, which starts in a second on an idle machine
ACCOUNT, REGION = "000000000000", "us-east-1"
# The environment variables that name trusted certificates for boto3, Python's ssl and Node.js.
TRUSTED = ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")

STOP_S = 5
POLL_S = 0.05
# Cases of the conformance suite that cannot pass on the emulator, with the reason.
NOT_HERE = {
    "4.6-path-slash": "the emulator treats a path with a trailing slash as the path without it",
    "8.2-malformed-ws-deep": "the emulator closes a connection that sends deeply nested JSON",
    "8.6-does-not-read-ws": "the emulator's queue for a client that does not read has no limit",
}
UNKNOWN = (
    "AWS::EMRServerless::Application",
    "AWS::CodeDeploy::Application",
    "AWS::CodeDeploy::DeploymentGroup",
    "AWS::Budgets::Budget",
)
NOTHING = "AWS::CloudFormation::WaitConditionHandle"
COMPILED = ("bcrypt", "httptools")  # the compiled packages that the functions import
STREAM_START_S = 60  # the longest wait for the streaming function, which usually takes a second
# The layers of the streaming function, by their construct paths.
_LAYERS = ("Layers/Vendor", "Layers/Core", "Layers/Aws")
# The minimum timeout of a function. A function starts in a new process, on a machine that may be
# busy.
TIMEOUT_S = 60


class EmulatorFailed(Exception):
    """MiniStack could not be installed or started, or the function `stream` did not start."""


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Start a fresh MiniStack that keeps its files in *folder*; stop it at the end.

    Yield the environment variables that direct AWS clients to MiniStack, which only accepts HTTPS.

    Raises:
        EmulatorFailed: MiniStack could not be installed or started.
    """
    program, port = _install(), free_port()
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("state", "s3", "tmp"):
        (folder / part).mkdir(parents=True)
    url, log = f"https://127.0.0.1:{port}", folder / "ministack.log"
    certificate = folder / "tmp" / "ministack-tls" / "server.crt"  # created by MiniStack
    with run_process([str(program)], _environment(folder, port), folder, log):
        if not answers(f"{url}/_ministack/health", START_S, certificate):
            raise EmulatorFailed(f"MiniStack was not up after {START_S} s; see {log}")
        yield clients_of(url) | dict.fromkeys(TRUSTED, str(certificate))


def clients_of(url: str) -> dict[str, str]:
    """Return the environment variables that direct AWS clients to the emulator at *url*."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(folder: Path, port: int) -> dict[str, str]:
    own = {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "LAMBDA_EXECUTOR": "local",
        "USE_SSL": "1",
        "STATE_DIR": str(folder / "state"),
        "S3_DATA_DIR": str(folder / "s3"),
        "TMPDIR": str(folder / "tmp"),
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | own


def _install() -> Path:
    folder = BUILD / "emulator"
    stamp = folder / "tidings.txt"
    if not (stamp.is_file() and stamp.read_text().split() == list(PACKAGES)):
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", *PACKAGES])
        stamp.write_text("\n".join(PACKAGES))
    return folder / "bin" / "ministack"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EmulatorFailed(f"MiniStack was not installed: {last}")


def adapt(assembly: Path) -> None:
    """Change *assembly* to the subset that the emulator can deploy."""
    for template in assembly.glob("*.template.json"):
        without_the_unknown(template)
    for_this_machine(assembly)


def without_the_unknown(template: Path) -> None:
    """Replace unsupported resources by placeholders, and references to their attributes by text."""
    body = json.loads(template.read_text())
    unknown = [name for name, each in body["Resources"].items() if each["Type"] in UNKNOWN]
    for name in unknown:
        body["Resources"][name] = {"Type": NOTHING}
    template.write_text(json.dumps(_named_apart(body, frozenset(unknown))))


def _named_apart(value: Any, names: frozenset[str]) -> Any:
    """Return *value* with text in place of references to attributes of the resources *names*."""
    match value:
        case {"Fn::GetAtt": [str(name), _]} if name in names:
            return "none"
        case dict():
            return {key: _named_apart(each, names) for key, each in value.items()}
        case list():
            return [_named_apart(each, names) for each in value]
    return value


def for_this_machine(assembly: Path, installed: Path | None = None) -> None:
    """Change the layers in *assembly* for this processor, and emulators that do not merge layers.

    Compiled files are taken from the folder *installed*, or if it is None, from this environment.

    Lambda merges all layers into one folder, but an emulator keeps a folder for each layer. A
    Python package is imported from one folder only, so each of our layers gets all of `tidings`.
    """
    for package in COMPILED:
        here = (installed or Path(sysconfig.get_path("platlib"))) / package
        for there in assembly.glob(f"asset.*/python/{package}"):
            for compiled in here.rglob("*.so"):
                shutil.copyfile(compiled, there / compiled.relative_to(here))
    ours = list(assembly.glob("asset.*/python/tidings"))
    for one in ours:
        for other in ours:
            if other != one:
                shutil.copytree(other, one, dirs_exist_ok=True)


@contextmanager
def serve_stage(stage: Stage, assembly: Path, url: str) -> Iterator[Addresses]:
    """Configure the functions of *stage*, run its streaming function, and yield its addresses.

    *stage* is deployed from *assembly* to the emulator at *url*.

    Raises:
        EmulatorFailed: the streaming function did not start.
    """
    described = _client(url, "cloudformation").describe_stacks(StackName=stack_name(stage.name))
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described["Stacks"][0]["Outputs"]}
    functions: LambdaClient = _client(url, "lambda")
    sockets = f"{url}/_aws/execute-api/{_id(outputs['SocketsUrl'])}/{SOCKET_STAGE}"
    _configure(functions, stage, TIDINGS_SOCKETS_URL=sockets, TIDINGS_OPEN="true")
    streaming = next(each for each in deployment.FUNCTIONS if each.endless)
    variables = _variables(functions, prefix(stage) + streaming.name) | clients_of(url)
    variables |= {name: os.environ[name] for name in TRUSTED if name in os.environ}
    files, log = _assets(assembly, stage), assembly.with_suffix(".stream.log")
    api = _id(outputs["FeedUrl"])
    with _stream(streaming, variables, files, log) as streams:
        # The HTTP API calls only one function by its URL, `list`. This function runs the same app
        # as `stream`, so its requests can be passed to the process of `stream`.
        _pass_on(_client(url, "apigatewayv2"), api, streams)
        feed = f"{url}/_aws/execute-api/{api}"
        yield Addresses(feed, streams, sockets.replace("https://", "wss://"))


def _client(url: str, service: str) -> Any:
    made: Any = boto3.client  # `Any`, because boto3's stubs require a literal service name
    return made(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def _assets(assembly: Path, stage: Stage) -> dict[str, Path]:
    """Return the deployed files of *stage*, by the display names of the CDK's assets."""
    body = json.loads((assembly / f"{stack_name(stage.name)}.assets.json").read_text())
    sources = {each["displayName"]: each["source"]["path"] for each in body["files"].values()}
    return {name: assembly / path for name, path in sources.items()}


@contextmanager
def _stream(
    function: deployment.Function,
    variables: Mapping[str, str],
    files: Mapping[str, Path],
    log: Path,
) -> Iterator[str]:
    """Run the start script of *function* from *files*, like Lambda; yield its URL."""
    port = str(free_port())
    layers = [files[f"{name}/Code"] for name in _LAYERS]
    own = {
        "AWS_LWA_PORT": port,
        "PATH": f"{BUILD / 'emulator' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(layer / "python") for layer in layers),
    }
    folder, url = files[f"{function.name.title()}/Function/Code"], f"http://127.0.0.1:{port}"
    with run_process([str(folder / STREAM_HANDLER)], {**variables, **own}, folder, log):
        if not answers(f"{url}/no-such-path", STREAM_START_S):
            raise EmulatorFailed(f"nothing answers at {url} after {STREAM_START_S} s; see {log}")
        yield url


def _pass_on(gateway: Any, api: str, streams: str) -> None:
    """Make the HTTP API call the URL *streams* instead of the URL of a function."""
    for each in gateway.get_integrations(ApiId=api)["Items"]:
        if each["IntegrationType"] == "HTTP_PROXY":
            gateway.update_integration(
                ApiId=api, IntegrationId=each["IntegrationId"], IntegrationUri=streams
            )


def _configure(functions: LambdaClient, stage: Stage, **changed: str) -> None:
    """Set *changed* in every function's environment; point its aliases to a new version."""
    for each in deployment.FUNCTIONS:
        name = prefix(stage) + each.name
        variables = {**_variables(functions, name), **changed}
        functions.update_function_configuration(
            FunctionName=name,
            Environment={"Variables": variables},
            Timeout=max(each.timeout_s, TIMEOUT_S),
        )
        for alias in functions.list_aliases(FunctionName=name)["Aliases"]:
            version = functions.publish_version(FunctionName=name)["Version"]
            functions.update_alias(FunctionName=name, Name=alias["Name"], FunctionVersion=version)


def _variables(functions: LambdaClient, name: str) -> dict[str, str]:
    return functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]


def _id(url: str) -> str:
    """Return the API's id: the first label of its host name."""
    return (urlsplit(url).hostname or "").partition(".")[0]


@contextmanager
def run_process(
    command: list[str], variables: Mapping[str, str], folder: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* in *folder* with *variables*; then stop the process and all its children."""
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command, env=variables, cwd=folder, stdout=lines, stderr=lines, start_new_session=True
        )
    try:
        yield process
    finally:
        try:
            _signal(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
        finally:  # runs even after a second Ctrl-C
            _signal(process, signal.SIGKILL)
            process.wait()


def answers(url: str, limit_s: float, certificate: Path | None = None) -> bool:
    """Return True once *url* answers without a server error; False after *limit_s*.

    *certificate* is the file with the server's certificate. It may not exist yet.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            trusted = ssl.create_default_context(cafile=certificate) if certificate else None
            urllib.request.urlopen(url, timeout=5, context=trusted).close()
        except urllib.error.HTTPError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                return True
        except OSError:
            pass
        else:
            return True
        time.sleep(POLL_S)
    return False


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
