"""The environment variables of a deployed function, from the same tables that `infra/` reads.

Compared with a stage, the addresses of AWS services differ, the feeds are open unless they have
credentials, and pages are archived at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.twin import store
from tests.twin.options import (
    ACCOUNT,
    PREFIX,
    REGION,
    STAGE,
    NoFunctions,
    Options,
    find_functions,
    table_producers,
)
from tests.twin.workers import Program
from tidings.aws.config import deployment, settings, twin_keys
from tidings.core import errors
from tidings.core.model.feeds import check_known
from tidings.http.settings import NO_ORIGINS, MissingSetting, WrongSetting
from tidings.server import feed_options
from tidings.server.http_server import HostCheck
from tidings.server.processes import Problem

HANDLER = "handler.py"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints of AWS services for a function; *api_token* grants access to *api_url*."""

    dynamodb_url: str
    api_url: str
    api_token: str

    @property
    def sockets_url(self) -> str:
        return f"{self.api_url}/{STAGE}"


_NOWHERE = Endpoints("", "", "")


def check(options: Options) -> None:
    """Reject options with which a function could not start.

    Call this function before any part of the twin is started.

    Raises:
        Problem: a handler is missing, a variable is unknown, or its value is invalid.
    """
    known = {setting.variable for setting in settings.SETTINGS}
    for variable in sorted(options.settings.keys() - known):
        raise Problem(f"--setting {variable}: unknown setting")
    for function in functions(options):
        program(function, options, _NOWHERE)
    try:
        feeds = parse_options(options).feeds
        for producer in table_producers(options):
            check_known(producer.feed, feeds)
    except (WrongSetting, MissingSetting, errors.Rejected) as error:
        raise Problem(str(error)) from None


def functions(options: Options) -> tuple[deployment.Function, ...]:
    """Return the functions of `deployment.FUNCTIONS`, and one per table that produces operations.

    Raises:
        Problem: a value of --capture is invalid.
    """
    producers = table_producers(options)
    return (*deployment.FUNCTIONS, *(each.function for each in producers))


def parse_options(options: Options) -> settings.Settings:
    """Return the settings that this twin's functions share."""
    return settings.Settings.read(_settings(options, _NOWHERE, None))


def host_check(options: Options) -> HostCheck:
    """Return the host names that this twin accepts, and the origins allowed to call it."""
    names = frozenset(name.lower() for name in (options.host, *options.allow_hosts))
    return HostCheck(names, parse_options(options).cors_origins)


def program(function: deployment.Function, options: Options, endpoints: Endpoints) -> Program:
    """Return the program that the workers of *function* run.

    Raises:
        NoFunctions: the folder of *function*, or the handler in it, is missing.
    """
    package = find_functions()
    folder = (options.functions or package.functions).resolve() / function.folder
    if not (folder / HANDLER).is_file():
        raise NoFunctions(str(folder))
    name = PREFIX + function.name
    return Program(
        name=name,
        folder=folder,
        timeout_s=function.timeout_s,
        arn=f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
        environment={
            **_platform(function, name, folder),
            **_services(endpoints),
            **_settings(options, endpoints, function),
            "PYTHONPATH": os.pathsep.join(map(str, (folder, *package.layers))),
        },
    )


def _settings(
    options: Options, endpoints: Endpoints, function: deployment.Function | None
) -> dict[str, str]:
    values: dict[str, str] = {
        setting.variable: setting.default for setting in settings.SETTINGS if setting.default
    }
    values |= {
        "TIDINGS_STAGE": STAGE,
        "TIDINGS_FUNCTION_PREFIX": PREFIX,
        "TIDINGS_FEEDS": options.feeds,
        "TIDINGS_OPEN": "true",
        "TIDINGS_ARCHIVE_SECONDS": "0",  # archive at once, because a run costs nothing here
        "TIDINGS_ERASURE_SECONDS": "0",  # here, a killed run does not continue elsewhere
        "TIDINGS_CORS_ORIGINS": ",".join(options.allow_origins) or NO_ORIGINS,
    }
    values |= {table.setting: store.table_name(table.name) for table in deployment.TABLES}
    archive = options.archive or options.data
    if archive is not None:
        values["TIDINGS_ARCHIVE"] = archive.resolve().as_uri()
    values |= feed_options.chain_settings(options)
    values |= options.settings
    if function is not None:
        values |= function.environment
        if function.sockets:
            values["TIDINGS_SOCKETS_URL"] = endpoints.sockets_url
    return values


def _platform(function: deployment.Function, name: str, folder: Path) -> Mapping[str, str]:
    return {
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": STAGE,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "LAMBDA_TASK_ROOT": str(folder),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "_HANDLER": "handler.handle",
        settings.SERVICE_VARIABLE: settings.metrics_service(STAGE),
        "POWERTOOLS_METRICS_NAMESPACE": settings.METRICS_NAMESPACE,
        "PATH": os.defpath,
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
    }


def _services(endpoints: Endpoints) -> Mapping[str, str]:
    shown = twin_keys.credentials(endpoints.dynamodb_url)
    return {
        "AWS_ACCESS_KEY_ID": shown["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": shown["aws_secret_access_key"],
        "AWS_SESSION_TOKEN": endpoints.api_token,  # ignored by DynamoDB Local
        "AWS_ENDPOINT_URL_DYNAMODB": endpoints.dynamodb_url,
        "AWS_ENDPOINT_URL_LAMBDA": endpoints.api_url,
        # A function assumes that it is on AWS, and must not use the profile of the developer.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
