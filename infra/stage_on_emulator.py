"""
A deployed stage as the emulator has it: its addresses, and what has to be put right first.

Three things cannot work there as deployed. It knows no EMR Serverless, so that Spark is left out.
The stack's WebSocket address names a host of AWS's, so the functions are told the emulator's. And
the emulator cannot run a Lambda extension, so the streaming function's own `run.sh` is started
beside it, in its deployed environment. The feed is opened to everybody, so that the suites need no
password.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import httpx
from tidings.aws import blueprint

from infra import build_layers
from infra.emulator import Emulator, free_port
from infra.names import SOCKET_STAGE, STREAM_HANDLER, prefix
from infra.paths import BUILD, FUNCTIONS, LAYERS, VENDOR
from infra.processes import stopped_at_exit
from infra.settings import Stage

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

SPARK, NOTHING = "AWS::EMRServerless::Application", "AWS::CloudFormation::WaitConditionHandle"
START_S = 20
POLL_S = 0.05


class NotUp(Exception):
    def __init__(self, url: str, log: Path) -> None:
        super().__init__(f"nothing answers at {url} after {START_S} s; see {log}")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a client finds the feed."""

    base_url: str
    stream_url: str
    sockets_url: str


def without_spark(template: Path) -> None:
    """Put nothing in the place of the EMR application, and a word in that of its names."""
    body = json.loads(template.read_text())
    spark = [name for name, each in body["Resources"].items() if each["Type"] == SPARK]
    for name in spark:
        body["Resources"][name] = {"Type": NOTHING}
    template.write_text(json.dumps(_named_apart(body, frozenset(spark))))


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


@contextmanager
def served(
    stage: Stage, outputs: Mapping[str, str], emulator: Emulator, folder: Path
) -> Iterator[Addresses]:
    """
    The stage with everything running that a client needs; logs go to *folder*.

    Raises:
        NotUp: the streaming function did not start.
    """
    functions = _functions(emulator)
    sockets = f"{emulator.url}/_aws/execute-api/{_id(outputs['SocketsUrl'])}/{SOCKET_STAGE}"
    _tell(functions, stage, TIDINGS_SOCKETS_URL=sockets, TIDINGS_OPEN="true")
    api = f"{emulator.url}/_aws/execute-api/{_id(outputs['FeedUrl'])}"
    streaming = next(each for each in blueprint.FUNCTIONS if each.streams)
    variables = _variables(functions, prefix(stage) + streaming.name)
    with _stream(streaming, variables, emulator, folder / "stream.log") as streams:
        yield Addresses(api, streams, sockets.replace("http://", "ws://"))


@contextmanager
def _stream(
    function: blueprint.Function, variables: Mapping[str, str], emulator: Emulator, log: Path
) -> Iterator[str]:
    """The function's own start script, with layers and variables as Lambda would give them."""
    port = str(free_port())
    layers = [VENDOR / name for name in build_layers.LAYERS] + [LAYERS / "core", LAYERS / "aws"]
    told = {
        "AWS_LWA_PORT": port,
        "PATH": f"{BUILD / 'emulator' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(layer / "python") for layer in layers),
    }
    folder = FUNCTIONS / function.folder
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [str(folder / STREAM_HANDLER)],
            env={**variables, **emulator.environment, **told},
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


def _tell(functions: LambdaClient, stage: Stage, **changed: str) -> None:
    for each in blueprint.FUNCTIONS:
        name = prefix(stage) + each.name
        variables = {**_variables(functions, name), **changed}
        functions.update_function_configuration(
            FunctionName=name, Environment={"Variables": variables}
        )


def _variables(functions: LambdaClient, name: str) -> dict[str, str]:
    return functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]


def _functions(emulator: Emulator) -> LambdaClient:
    found = emulator.environment
    return boto3.client(
        "lambda",
        endpoint_url=emulator.url,
        region_name=found["AWS_REGION"],
        aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
    )


def _id(url: str) -> str:
    """The API's id: the first label of its host name."""
    return (urlsplit(url).hostname or "").partition(".")[0]
