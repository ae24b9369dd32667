"""File systems that refuse modes, links, locks, sockets, or syncs of folders."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidings.client.files import StateFile
from tidings.core.archive.segments import Span
from tidings.http.outbound.files import copy_folder, publish, restrict, sync_folder
from tidings.http.outbound.folder_archive import FolderArchive
from tidings.pipelines.files import OnDisk
from tidings.pipelines.messages import Overtaken
from tidings.server import processes

WITHIN_S = 180.0
NOWHERE = ("--url", "http://127.0.0.1:1")
OPERATION = {"event": "insert", "type": "video", "id": "x32"}
# A program that refuses calls as a file system does, and then runs a command.
REFUSING = """
import asyncio, errno, fcntl, os, stat, sys

def refuse(number):
    def call(*_, **__):
        raise OSError(number, os.strerror(number))
    return call

def sync(file, really=os.fsync):
    if stat.S_ISDIR(os.fstat(file if isinstance(file, int) else file.fileno()).st_mode):
        refuse(errno.EINVAL)()
    really(file)

refused, *arguments = sys.argv[1:]
if "modes" in refused:
    os.chmod = os.fchmod = os.chown = os.fchown = refuse(errno.EPERM)
if "links" in refused:
    os.link = os.symlink = refuse(errno.EPERM)
if "syncs" in refused:
    os.fsync = sync
if "locks" in refused:
    fcntl.flock = refuse(errno.ENOLCK)
if "sockets" in refused:
    asyncio.start_unix_server = refuse(errno.EPERM)
from tidings.client.cli.main import main
main(arguments, prog_name="tidings")
"""


def command(refused: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", REFUSING, refused, *arguments]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `tidings` until it has printed its first line."""
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert " ready " in process.stdout.readline() or process.stderr.read()
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("mode", [0o2770, 0o755, 0o700])
def test_a_server_runs_in_a_folder_that_refuses_nearly_everything(
    tmp_path: Path, mode: int
) -> None:
    """It has secrets, so it warns if other users can read the folder."""
    data, port = tmp_path / "data", str(processes.free_port())
    data.mkdir()
    data.chmod(mode)
    refused = "modes links syncs sockets"
    options = ("--port", port, "--data", str(data), "--setting", f"TIDINGS_ARCHIVE=file://{data}")
    with running(refused, "serve", *options) as server:
        url = f"http://127.0.0.1:{port}"
        assert httpx.post(url, json=OPERATION).status_code == 204
        assert httpx.get(f"{url}/health").status_code == 200
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=WITHIN_S)
        assert server.returncode == 0
    assert ("is open to other users" in said) == bool(mode & 0o007)
    assert "operator.sock cannot be created (Operation not permitted)" in said
    files = [each for each in data.iterdir() if each.is_file()]
    assert not [each for each in files if stat.S_IMODE(each.stat().st_mode) & 0o077]
    for code in (0, 1):  # the target exists the second time
        backup = command(refused, "backup", "--data", str(data), str(tmp_path / "copy.db"))
        assert subprocess.run(backup, check=False, timeout=WITHIN_S).returncode == code


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("serve", "--port", "{port}", "--data", "{folder}"),
            "tidings serve: {folder}/feed.db: its file system refuses locks (No locks available);"
            " use a folder on a local disk\n",
        ),
        (
            ("agent", *NOWHERE, "--listen", ":{port}", "--queue-dir", "{folder}"),
            "tidings agent: cannot lock the queue folder {folder}: No locks available;"
            " use a --queue-dir on a local disk\n",
        ),
    ],
)
def test_without_locks_a_host_does_not_start(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    """Two processes on one file would damage it."""
    values = {"port": processes.free_port(), "folder": tmp_path}
    arguments = command("locks", *(each.format(**values) for each in options))
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=WITHIN_S)
    assert (done.returncode, done.stderr) == (1, sentence.format(**values))


def test_an_agent_runs_in_a_folder_that_refuses_nearly_everything(tmp_path: Path) -> None:
    port = str(processes.free_port())
    options = (*NOWHERE, "--listen", f":{port}", "--drain-seconds", "0")
    with running("modes links syncs", "agent", *options, "--queue-dir", str(tmp_path)) as agent:
        assert httpx.post(f"http://127.0.0.1:{port}", json=OPERATION).status_code == 204
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(WITHIN_S) == 0


def _refuse(number: int) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_name_is_given_once_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """By a rename that replaces nothing."""
    monkeypatch.setattr(os, "link", _refuse(number))
    parts = OnDisk(tmp_path, ".ndjson")
    parts.open()
    parts.put(1, b"first")
    with pytest.raises(Overtaken):
        parts.put(1, b"second")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("part-0000000001.ndjson", b"first")
    ]
    (tmp_path / "written").write_bytes(b"third")
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "written", tmp_path / "missing" / "name")


@pytest.mark.parametrize("call", ["open", "fsync"])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.EIO])
def test_a_folder_that_cannot_be_synced_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """A cursor and a part of the archive are written; a failing disk is still an error."""
    really = getattr(os, call)

    def sometimes(*arguments: Any, **options: Any) -> Any:
        place = arguments[0]
        if os.path.isdir(place) if call == "open" else stat.S_ISDIR(os.fstat(place).st_mode):
            raise OSError(number, os.strerror(number))
        return really(*arguments, **options)

    monkeypatch.setattr(os, call, sometimes)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)
        return
    StateFile(tmp_path / "state").save("0")
    assert StateFile(tmp_path / "state").load() == "0"
    FolderArchive(tmp_path).put("main", Span(last=2, first=1), b"pages")
    assert FolderArchive(tmp_path).get("main", Span(last=2, first=1)) == b"pages"


def test_a_folder_is_copied_without_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a sync, into a folder that another user owns."""
    (tmp_path / "plan" / "part").mkdir(parents=True)
    (tmp_path / "plan" / "part" / "one").write_text("1")
    for call in ("chmod", "utime", "chown"):
        monkeypatch.setattr(os, call, _refuse(errno.EPERM))
    for _ in range(2):
        copy_folder(tmp_path / "plan", tmp_path / "kept" / "plan")
    assert (tmp_path / "kept" / "plan" / "part" / "one").read_text() == "1"


def test_a_mode_that_cannot_be_set_for_another_reason_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        restrict(tmp_path / "missing", 0o700)
