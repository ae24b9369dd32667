"""The CDK's command line, downloaded once to build/node, and a check for Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from infra import BUILD

NODE_MAJOR = 22  # the oldest release that Node.js maintains
NODE_MAJOR_MIN = 20  # the oldest release on which aws-cdk-lib 2.275 runs


class NodeMissing(Exception):
    """Node.js is missing or too old."""


def require_node() -> None:
    """Check the version of Node.js, and warn if it is no longer maintained.

    Raises:
        NodeMissing: no `node` is on the PATH, or it is too old.
    """
    node, digits, needed = shutil.which("node"), "", f"Node.js {NODE_MAJOR} or newer is needed"
    if node is not None:
        printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
        digits = printed.stdout.strip().removeprefix("v").partition(".")[0]
    if not digits.isdigit() or int(digits) < NODE_MAJOR_MIN:
        raise NodeMissing(f"{needed} to synthesise the CDK app and is not on the PATH.")
    if int(digits) < NODE_MAJOR:
        sys.stderr.write(f"warning: {needed} for the CDK; Node.js {digits} is not maintained\n")


# The release 3.x, npm's `latest`, cannot be used: it rejects the output of aws-cdk-lib 2.275.
VERSION = "2.1148.1"


class CdkFailed(Exception):
    """npm or the CDK's command line ended with an error."""


@dataclass(frozen=True, slots=True)
class Cdk:
    """The CDK's commands for the stacks of *assembly*.

    *variables* are environment variables for the AWS clients of the commands. A command that fails
    raises `CdkFailed` with its complete output.
    """

    assembly: Path
    variables: dict[str, str]

    def bootstrap(self, account: str, region: str) -> None:
        self._run("bootstrap", f"aws://{account}/{region}")

    def deploy(self, stack: str, *, exclusively: bool = False, imports: bool = False) -> None:
        """Create or update *stack*.

        Unless *exclusively*, the stacks on which *stack* depends are deployed first. With
        *imports*, *stack* takes over existing resources, such as restored tables, that have the
        names of resources in its template.
        """
        options = [("--exclusively", exclusively), ("--import-existing-resources", imports)]
        chosen = (option for option, is_chosen in options if is_chosen)
        self._run("deploy", stack, "--require-approval=never", *chosen)

    def same(self, stack: str) -> None:
        """Check that the template of *stack* does not differ from the deployed template."""
        self._run("diff", stack, "--exclusively", "--fail")

    def destroy(self, stack: str) -> None:
        """Delete the stacks that depend on *stack*, then *stack*."""
        self._run("destroy", stack, "--force")

    def _run(self, *command: str) -> None:
        _run([str(_install()), "--app", str(self.assembly), *command], self.variables)


def _install() -> Path:
    folder = BUILD / "node"
    package = folder / "node_modules" / "aws-cdk" / "package.json"
    if not package.is_file() or json.loads(package.read_text())["version"] != VERSION:
        npm = shutil.which("npm")
        if npm is None:
            raise CdkFailed("npm is needed to fetch the CDK's command line and is not on the PATH.")
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        _run([npm, "install", *quiet, "--prefix", str(folder), f"aws-cdk@{VERSION}"], {})
    return folder / "node_modules" / ".bin" / "cdk"


def _run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env=os.environ | {"CDK_DISABLE_CLI_TELEMETRY": "true"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CdkFailed(f"{' '.join(command)}\n{done.stdout}")
