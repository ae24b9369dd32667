"""The environment variables of a deployed function, from the same tables that `infra/` reads.

Compared with a stage, the addresses of AWS services differ, the feeds are open unless they have
credentials, and pages are archived at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra import FUNCTIONS, SOURCE
from tests.twin import store
from tidings.aws.config import deployment, settings, stages
from tidings.http.settings import NO_ORIGINS
from tidings.server import feed_options
from tidings.server.feed_options import HostOptions

REGION = stages.LOCAL_CREDENTIALS["region_name"]
ACCOUNT = "000000000000"


@dataclass(frozen=True, slots=True)
class Options(HostOptions):
    """The options of a twin.

    *endpoint_url* is the address of a DynamoDB to use instead of starting DynamoDB Local. *data* is
    the folder of the archive, the logs and, unless *tables_in_memory*, the tables. *functions* is
    the folder of the handlers.
    """

    endpoint_url: str | None = None
    dynamodb_port: int = 0
    data: Path | None = None
    tables_in_memory: bool = False
    functions: Path = FUNCTIONS


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of DynamoDB, and of Lambda's API and `@connections`."""

    dynamodb_url: str
    api_url: str


@dataclass(frozen=True, slots=True)
class Program:
    """The code that a worker runs: *folder*/handler.py, with *environment*.

    An invocation may take at most *timeout_s*.
    """

    name: str
    folder: Path
    timeout_s: float
    environment: Mapping[str, str]
    arn: str


def parse_options(options: Options) -> settings.Settings:
    """Return the settings that this twin's functions share."""
    return settings.Settings.read(_settings(options))


def program(function: deployment.Function, options: Options, endpoints: Endpoints) -> Program:
    """Return the program that the workers of *function* run."""
    folder = options.functions.resolve() / function.folder
    name = store.PREFIX + function.name
    sockets = {"TIDINGS_SOCKETS_URL": f"{endpoints.api_url}/{store.STAGE}"}
    return Program(
        name=name,
        folder=folder,
        timeout_s=function.timeout_s,
        arn=f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
        environment={
            **_platform(function, name, folder),
            **_services(endpoints),
            **_settings(options),
            **function.environment,
            **(sockets if function.sockets else {}),
        },
    )


def _settings(options: Options) -> dict[str, str]:
    values = {each.variable: each.default for each in settings.SETTINGS if each.default}
    values |= {
        "TIDINGS_STAGE": store.STAGE,
        "TIDINGS_FUNCTION_PREFIX": store.PREFIX,
        "TIDINGS_FEEDS": options.feeds,
        "TIDINGS_OPEN": "true",
        "TIDINGS_ARCHIVE_SECONDS": "0",  # archive at once, because a run costs nothing here
        "TIDINGS_ERASURE_SECONDS": "0",  # here, a killed run does not continue elsewhere
        "TIDINGS_CORS_ORIGINS": ",".join(options.allow_origins) or NO_ORIGINS,
    }
    values |= {table.setting: store.table_name(table.name) for table in deployment.TABLES}
    if options.data is not None:
        values["TIDINGS_ARCHIVE"] = options.data.resolve().as_uri()
    return values | feed_options.chain_settings(options) | dict(options.settings)


def _platform(function: deployment.Function, name: str, folder: Path) -> Mapping[str, str]:
    return {
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": store.STAGE,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "LAMBDA_TASK_ROOT": str(folder),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "_HANDLER": "handler.handle",
        settings.SERVICE_VARIABLE: settings.metrics_service(store.STAGE),
        "POWERTOOLS_METRICS_NAMESPACE": settings.METRICS_NAMESPACE,
        "PATH": os.defpath,
        "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE}",
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
    }


def _services(endpoints: Endpoints) -> Mapping[str, str]:
    known = stages.LOCAL_CREDENTIALS
    return {
        "AWS_ACCESS_KEY_ID": known["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": known["aws_secret_access_key"],
        "AWS_ENDPOINT_URL_DYNAMODB": endpoints.dynamodb_url,
        "AWS_ENDPOINT_URL_LAMBDA": endpoints.api_url,
        # A function assumes that it is on AWS, and must not use the profile of the developer.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
