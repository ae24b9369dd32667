"""
A function of the twin under its role: what its deployed handler does, refused where AWS would.

`put_under_roles` makes a folder for `tidings local --functions`; every handler in it first hooks
into what is signed, then is the true one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from tests.iam.policy import Statement, allowed
from tests.iam.requests import calls_of
from tests.iam.signing import hook

_HANDLER = """\
import sys
sys.path.append({root!r})
from tests.iam.worker import begin
begin({folder!r})
exec(compile(open({handler!r}).read(), {handler!r}, "exec"))
"""
_POLICIES, _CALLS, _REFUSED = "policies.json", "calls", "refused"


def put_under_roles(
    folder: Path, functions: Path, policies: Mapping[str, Sequence[Statement]], account: str
) -> None:
    """*policies* are those of each function, by its name in AWS."""
    told = {"account": account, "policies": policies}
    (folder / _POLICIES).write_text(json.dumps(told))
    for name in (_CALLS, _REFUSED):
        (folder / name).touch()
    for handler in functions.glob("*/handler.py"):
        made = folder / handler.parent.name
        made.mkdir()
        root = str(functions.parent)
        text = _HANDLER.format(root=root, folder=str(folder), handler=str(handler))
        (made / "handler.py").write_text(text)


def begin(folder: str) -> None:
    """In the worker: refuse from now on what the role of this function may not."""
    told = json.loads((Path(folder) / _POLICIES).read_text())
    name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    policy = told["policies"][name]

    def see(service: str, region: str, request: AWSRequest) -> None:
        for call in calls_of(service, region, told["account"], request):
            _note(Path(folder) / _CALLS, f"{name} {call.action}")
            if not allowed(policy, call):
                _note(Path(folder) / _REFUSED, f"{name}: {call}")
                raise ClientError({"Error": {"Code": "AccessDeniedException"}}, call.action)

    hook(see)


def calls(folder: Path) -> set[str]:
    """Functions that asked AWS for anything, each with the action."""
    return set((folder / _CALLS).read_text().splitlines())


def refused(folder: Path) -> set[str]:
    return set((folder / _REFUSED).read_text().splitlines())


def _note(file: Path, line: str) -> None:
    """In one write: workers are processes."""
    with file.open("ab", buffering=0) as out:
        out.write(f"{line}\n".encode())
