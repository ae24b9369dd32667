"""The allowed and required contents of a snapshot of a function's process (ADR 54)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.functions.conftest import ENVIRONMENT
from tidings.aws.config import deployment
from tidings.aws.config.settings import SETTINGS

# Imitates Lambda's runtime: its library for hooks is not on this machine.
_HOOKS = """
before, after = [], []
def register_before_snapshot(hook, *args): before.append((hook, args))
def register_after_restore(hook, *args): after.append((hook, args))
"""
# One process for all functions: each is looked at before the next one is loaded.
_PROGRAM = """
import gc, importlib.util, os, random, socket, sys
import snapshot_restore_py as hooks

drawn = []
draw = os.urandom
os.urandom = lambda size: drawn.append(size) or draw(size)

def left(kinds):
    gc.collect()
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds)]

for folder in sys.argv[1:]:
    del hooks.before[:], hooks.after[:]
    spec = importlib.util.spec_from_file_location(folder, f"functions/{folder}/handler.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    from botocore.client import BaseClient
    from botocore.credentials import Credentials
    from tidings.aws import clients
    from tidings.assembly.feed import KEY_BYTES
    from tidings.aws import stage
    assert [hook for hook, _ in hooks.before] == [stage.rehearse], folder
    hook, (build,) = hooks.before[0]
    hook(build)

    kept = left((BaseClient, Credentials, socket.socket))
    assert not kept, (folder, kept)
    built = [
        name
        for module in (clients, stage)
        for name, part in vars(module).items()
        if hasattr(part, "cache_info") and part.cache_info().currsize
    ]
    assert not built, (folder, built)

    state, loaded, drawn[:] = random.getstate(), {*sys.modules}, []
    for hook, args in hooks.after:
        hook(*args)
    assert random.getstate() != state, folder
    build()
    assert not {*sys.modules} - loaded, (folder, {*sys.modules} - loaded)
    if folder == "ingest":
        assert KEY_BYTES in drawn, drawn  # the key of this process
    stage.forget()
    print(folder)
"""


def _run(tmp_path: Path, kind: str, *folders: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "snapshot_restore_py.py").write_text(_HOOKS)
    told = {each.variable: each.default for each in SETTINGS}
    environment = {name: "x" if text is None else text for name, text in told.items()}
    environment |= {"TIDINGS_ARCHIVE": "s3://bucket/archive", **ENVIRONMENT}
    environment["AWS_LAMBDA_INITIALIZATION_TYPE"] = kind
    environment["PYTHONPATH"] = ":".join([str(tmp_path), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *folders],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _answering() -> list[str]:
    """Return the functions that a client waits for, but for those without a snapshot."""
    routes = {each.function for each in deployment.HTTP_ROUTES}
    routes |= {each.function for each in deployment.SOCKET_ROUTES}
    functions = [each for each in deployment.FUNCTIONS if each.name in routes - {"disconnect"}]
    return sorted({each.folder for each in functions if not each.streams})


def test_nothing_of_one_process_is_in_the_memory_of_all(tmp_path: Path) -> None:
    """No client, credential, connection or key is kept; and the first request imports nothing."""
    done = _run(tmp_path, "snap-start", *_answering())

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == _answering()


def test_without_a_snapshot_nothing_is_built_before_it_is_asked_for(tmp_path: Path) -> None:
    """A start on demand stays as short as it is."""
    done = _run(tmp_path, "on-demand", "ingest")

    assert done.returncode == 1
    assert "AssertionError: ingest" in done.stderr
