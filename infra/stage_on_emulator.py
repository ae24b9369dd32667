"""
A deployed stage as the emulator has it: its addresses, and what has to be put right first.

Four things cannot work there as deployed. It knows no EMR Serverless, CodeDeploy and Budgets, so
that Spark, canaries and budgets are left out.
The wheels are for the processor of AWS's machines, so compiled ones are replaced. The stack's
WebSocket address names a host of AWS's, so the functions are told the emulator's. And the emulator
cannot run a Lambda extension, so the streaming function's own `run.sh` is started beside it, out
of its deployed assets and in its deployed environment, and the HTTP API gets its address. The feed
is open, so that the suites need no password.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import bcrypt
import httptools
import httpx
from tidings.aws.config import deployment
from tidings.aws.config.stages import Addresses, stack_name

from infra.emulator import Emulator, free_port
from infra.names import SOCKET_STAGE, STREAM_HANDLER, prefix
from infra.paths import BUILD
from infra.processes import stopped_at_exit
from infra.settings import Stage

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# Cases of the conformance suite that cannot hold here, and why.
NOT_HERE = {
    "4.6-path-slash": "the emulator takes a path with a slash at its end for the one without",
    "8.2-malformed-ws-deep": "the emulator's gateway cuts a connection over deeply nested JSON",
    "8.6-does-not-read-ws": "the emulator queues without end for a client that does not read",
}
UNKNOWN = (
    "AWS::EMRServerless::Application",
    "AWS::CodeDeploy::Application",
    "AWS::CodeDeploy::DeploymentGroup",
    "AWS::Budgets::Budget",
)
NOTHING = "AWS::CloudFormation::WaitConditionHandle"
COMPILED = (bcrypt, httptools)  # what functions import of compiled code
START_S = 60  # a second on an idle machine
# What the streaming function runs with, by what the CDK calls it.
_LAYERS = ("Layers/Vendor", "Layers/VendorStream", "Layers/Core", "Layers/Aws")
POLL_S = 0.05
TIMEOUT_S = 60  # of a function: it starts in a new process, and this machine has other work


class NotUp(Exception):
    def __init__(self, url: str, log: Path) -> None:
        super().__init__(f"nothing answers at {url} after {START_S} s; see {log}")


def without_the_unknown(template: Path) -> None:
    """Put nothing in the place of what the emulator does not know, a word in that of its names."""
    body = json.loads(template.read_text())
    unknown = [name for name, each in body["Resources"].items() if each["Type"] in UNKNOWN]
    for name in unknown:
        body["Resources"][name] = {"Type": NOTHING}
    template.write_text(json.dumps(_named_apart(body, frozenset(unknown))))


def _named_apart(value: Any, names: frozenset[str]) -> Any:
    """*value* without references to attributes of *names*."""
    match value:
        case {"Fn::GetAtt": [str(name), _]} if name in names:
            return "none"
        case dict():
            return {key: _named_apart(each, names) for key, each in value.items()}
        case list():
            return [_named_apart(each, names) for each in value]
    return value


def for_this_machine(assembly: Path) -> None:
    """Put what packages have compiled for this processor beside what they have for AWS's."""
    for package in COMPILED:
        here = Path(package.__file__ or "").parent
        for there in assembly.glob(f"asset.*/python/{package.__name__}"):
            for compiled in here.rglob("*.so"):
                shutil.copyfile(compiled, there / compiled.relative_to(here))


@contextmanager
def served(
    stage: Stage, outputs: Mapping[str, str], emulator: Emulator, assembly: Path
) -> Iterator[Addresses]:
    """
    The stage, deployed from *assembly*, with everything running that a client needs.

    Raises:
        NotUp: the streaming function did not start.
    """
    functions: LambdaClient = emulator.client("lambda")
    sockets = f"{emulator.url}/_aws/execute-api/{_id(outputs['SocketsUrl'])}/{SOCKET_STAGE}"
    _tell(functions, stage, TIDINGS_SOCKETS_URL=sockets, TIDINGS_OPEN="true")
    api = f"{emulator.url}/_aws/execute-api/{_id(outputs['FeedUrl'])}"
    streaming = next(each for each in deployment.FUNCTIONS if each.endless)
    variables = _variables(functions, prefix(stage) + streaming.name)
    files = _assets(assembly, stage)
    log = assembly.with_suffix(".stream.log")
    with _stream(streaming, variables, emulator, files, log) as streams:
        _pass_on(emulator, _id(outputs["FeedUrl"]), streams)  # `list` is the same app
        yield Addresses(api, streams, sockets.replace("http://", "ws://"))


def _assets(assembly: Path, stage: Stage) -> dict[str, Path]:
    """Return the files that are deployed with *stage*, by the display name that the CDK gives."""
    body = json.loads((assembly / f"{stack_name(stage.name)}.assets.json").read_text())
    sources = {each["displayName"]: each["source"]["path"] for each in body["files"].values()}
    return {name: assembly / path for name, path in sources.items()}


@contextmanager
def _stream(
    function: deployment.Function,
    variables: Mapping[str, str],
    emulator: Emulator,
    files: Mapping[str, Path],
    log: Path,
) -> Iterator[str]:
    """
    The function's own start script out of *files*, with layers and variables as Lambda would give
    them.
    """
    port = str(free_port())
    layers = [files[f"{name}/Code"] for name in _LAYERS]
    own = {
        "AWS_LWA_PORT": port,
        "PATH": f"{BUILD / 'emulator' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(layer / "python") for layer in layers),
    }
    folder = files[f"{function.name.title()}/Function/Code"]
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [str(folder / STREAM_HANDLER)],
            env={**variables, **emulator.environment, **own},
            cwd=folder,
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
        with stopped_at_exit(process):
            yield _up(f"http://127.0.0.1:{port}", log)


def _up(url: str, log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/no-such-path", timeout=START_S)
        except httpx.TransportError:
            time.sleep(POLL_S)
        else:
            return url
    raise NotUp(url, log)


def _pass_on(emulator: Emulator, api: str, streams: str) -> None:
    """What the HTTP API passes on to the streaming function's URL goes to *streams*."""
    gateway = emulator.client("apigatewayv2")
    for each in gateway.get_integrations(ApiId=api)["Items"]:
        if each["IntegrationType"] == "HTTP_PROXY":
            gateway.update_integration(
                ApiId=api, IntegrationId=each["IntegrationId"], IntegrationUri=streams
            )


def _tell(functions: LambdaClient, stage: Stage, **changed: str) -> None:
    """Set *changed* in the environment of every function, and publish it under its aliases."""
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
    """The API's id: the first label of its host name."""
    return (urlsplit(url).hostname or "").partition(".")[0]
