"""SIGHUP: a server reads its files again, nohup has an effect, and the end of a terminal is one."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.certificates import write_authority
from tests.compat.oplog.wire import until
from tidings.server import processes
from tidings.server.running import Server

OPERATION = {"event": "insert", "type": "video", "id": "x32"}
WITHIN_S = 180.0


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """Let servers that a test starts have the default SIGHUP, also if the tests have nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def hang_up(server: Server) -> None:
    os.kill(server.pid, signal.SIGHUP)


def trust(file: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file)


def _has_logged(server: Server, text: str) -> bool:
    return text in server.errors()


def certificate(server: Server) -> str:
    """Return the certificate of a new connection."""
    return ssl.get_server_certificate(("127.0.0.1", server.port))


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """Open connections stay; a certificate that cannot be used changes nothing and is logged."""
    file = write_authority(tmp_path)
    options = ("--tls-cert", str(file), "--tls-key", str(file), "--verbose")
    (tmp_path / "next").mkdir()
    with Server(*options) as server, httpx.Client(verify=trust(file)) as client:
        url = f"https://127.0.0.1:{server.port}/"
        assert client.post(url, json=OPERATION).status_code == 204
        old = certificate(server)
        for wrong, cause in (("no certificate", "--tls-cert"), (old, "--tls-key")):
            file.write_text(wrong)
            hang_up(server)
            said = f"SIGHUP: the certificate did not change: {cause} {file} must have"
            until(partial(_has_logged, server, said))
            assert certificate(server) == old
        shutil.copy(write_authority(tmp_path / "next"), file)
        hang_up(server)
        until(lambda: certificate(server) != old)
        assert client.post(url, json=OPERATION).status_code == 204
        assert httpx.post(url, json=OPERATION, verify=trust(file)).status_code == 204
        assert server.stop() == 0


def test_a_changed_password_is_used_without_a_restart(tmp_path: Path) -> None:
    """Also for new feeds. A file without a password changes nothing, and one password stays."""
    reader, producer = tmp_path / "r", tmp_path / "i"
    reader.write_text("first reader\n")
    producer.write_text("the producer\n")
    options = ("--read-password-file", str(reader), "--ingest-password-file", str(producer))
    with Server(*options, "--feeds", "main,other", "--verbose") as server:

        def status(password: str, feed: str = "main") -> int:
            url = f"{server.url}feeds/{feed}/log"
            return httpx.get(url, auth=("", password)).status_code

        def accepts(password: str, feed: str) -> bool:
            return status(password, feed) == 200

        reader.write_text("")
        hang_up(server)
        until(lambda: f"--read-password-file {reader}: the password must" in server.errors())
        assert status("first reader") == 200
        reader.write_text("second reader\n")
        hang_up(server)
        for feed in ("main", "other"):
            until(partial(accepts, "second reader", feed))
            assert status("first reader", feed) == 401
        assert httpx.post(server.url, json=OPERATION, auth=("", "the producer")).status_code == 204
        hosts = httpx.get(f"{server.url}feeds", auth=("", "second reader"))
        assert hosts.status_code != 401
        assert httpx.get(f"{server.url}feeds", auth=("", "first reader")).status_code == 401
        assert "second reader" not in server.errors()


COMMANDS = {
    "serve": ["--port", "{port}", "--data", "{folder}"],
    "agent": ["--url", "http://127.0.0.1:1", "--listen", ":{port}", "--queue-dir", "{folder}"],
    "tail": ["--url", "http://127.0.0.1:{port}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nohup_keeps_a_command_running(tmp_path: Path, command: str) -> None:
    """SIGHUP stays ignored, in each process of the command."""
    port = processes.free_port()
    options = [each.format(port=port, folder=tmp_path) for each in COMMANDS[command]]
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["nohup", sys.executable, "-m", "tidings", command, *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        try:
            until(lambda: out.stat().st_size)
            for each in [process.pid, *_children(process.pid)]:
                os.kill(each, signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()


def test_the_end_of_its_terminal_ends_a_server(tmp_path: Path) -> None:
    """Without nohup. A SIGHUP of another process does not, as the terminal is still there."""
    port = processes.free_port()
    pid, terminal = pty.fork()
    if pid == 0:
        command = ["tidings", "serve", "--port", str(port), "--data", str(tmp_path)]
        os.execv(sys.executable, [sys.executable, "-m", *command])
    try:
        until(lambda: b"Ctrl-C ends it" in os.read(terminal, 65_536))
        os.kill(pid, signal.SIGHUP)
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
