"""Caddy, HAProxy and Apache in front of a server, with the configurations of its guide."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.compat.oplog.wire import until
from tests.world.nginx import GUIDE, Nginx, accepts, blocks
from tidings.server.processes import free_port

_MODULES = "/usr/lib/apache2/modules"
_ALWAYS = ("mpm_event", "authz_core", "alias", "proxy")  # those that Debian or a2enmod adds
_STOP_S = 10.0


def _caddy(folder: Path, port: int, to: str) -> list[str]:
    (text,) = blocks("caddyfile")
    text = text.replace("feed.example", f"http://127.0.0.1:{port}").replace("127.0.0.1:8042", to)
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
    return ["caddy", "run", "--config", str(folder / "Caddyfile")]


def _haproxy(folder: Path, port: int, to: str) -> list[str]:
    (text,) = blocks("haproxy")
    text = text.replace("bind :80", f"bind 127.0.0.1:{port}").replace("127.0.0.1:8042", to)
    (folder / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]


def _apache(folder: Path, port: int, to: str) -> list[str]:
    (text,), (answer,) = blocks("apache"), blocks("text")
    text = text.replace("*:80", f"127.0.0.1:{port}").replace("127.0.0.1:8042", to)
    (folder / "restarting.asis").write_text(answer)
    named = re.search(r"a2enmod ([a-z_ ]+)", GUIDE)
    assert named is not None
    modules = (*_ALWAYS, *named[1].split())
    head = [
        *(f"LoadModule {name}_module {_MODULES}/mod_{name}.so" for name in modules),
        f"ServerRoot {folder}",
        "ServerName localhost",
        f"PidFile {folder}/pid",
        f"DefaultRuntimeDir {folder}",
        f"ErrorLog {folder}/error.log",
        f"Listen 127.0.0.1:{port}",
    ]
    lines = "\n".join([*head, text.replace("/etc/apache2", str(folder))])
    (folder / "apache.conf").write_text(lines)
    return ["apache2", "-D", "FOREGROUND", "-f", str(folder / "apache.conf")]


_OTHERS = {"caddy": _caddy, "haproxy": _haproxy, "apache": _apache}


@contextmanager
def every_proxy(folder: Path, port: int) -> Iterator[Mapping[str, str]]:
    """Run each proxy in front of *port*; yield the address of each, with a slash at its end."""
    with ExitStack() as stack:
        (folder / "nginx").mkdir()
        nginx = stack.enter_context(Nginx(folder / "nginx", port))
        urls = {"nginx": nginx.url("sockets")}
        for name, command in _OTHERS.items():
            (folder / name).mkdir()
            own = free_port()
            arguments = command(folder / name, own, f"127.0.0.1:{port}")
            stack.enter_context(_running(arguments, folder / name))
            until(partial(accepts, own))
            urls[name] = f"http://127.0.0.1:{own}/"
        yield urls


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the signal ends its workers, too
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_STOP_S)
