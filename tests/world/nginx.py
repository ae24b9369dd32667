"""A real nginx in front of a server, with the configurations that operators write first."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.certificates import write_authority
from tests.compat.oplog.wire import until
from tests.world import installing
from tidings.server.processes import free_port

GUIDE = (installing.ROOT / "docs/guides/SERVER.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the blocks of *language* in the server's guide."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


_PLACE, _MAP = blocks("nginx")
_LOCATION = _PLACE.replace("{", "{{").replace("}", "}}").replace("http://127.0.0.1:8042", "{to}")
# Each block has an address of its own, and says nothing about buffers.
_BLOCKS = {
    "plain": "listen 127.0.0.1:{port}; location / {{ proxy_pass {to}; }}",
    "tls": "listen 127.0.0.1:{port} ssl; {certificate} location / {{ proxy_pass {to}; }}",
    "http2": "listen 127.0.0.1:{port} ssl http2; {certificate} location / {{ proxy_pass {to}; }}",
    "gzip": (
        "listen 127.0.0.1:{port}; gzip on; gzip_proxied any; gzip_min_length 0;"
        " gzip_types text/event-stream application/x-ndjson application/json;"
        " location / {{ proxy_pass {to}; }}"
    ),
    "path": "listen 127.0.0.1:{port}; location /app/ {{ proxy_pass {to}/; }}",
    "prefix": "listen 127.0.0.1:{port}; location /app/ {{ proxy_pass {to}; }}",
    "sockets": "listen 127.0.0.1:{port}; " + _LOCATION,
    "impatient": "listen 127.0.0.1:{port}; proxy_read_timeout 2s; " + _LOCATION,
}
_BELOW = {"path": "app/", "prefix": "app/"}
_TLS = ("tls", "http2")
_SHUT_DOWN_S = 10.0


class Nginx:
    """Serve *port* through every block; `kill` and `start` it as often as you like."""

    def __init__(self, folder: Path, port: int) -> None:
        self.authority = write_authority(folder)
        self._folder = folder
        self._ports = {block: free_port() for block in _BLOCKS}
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "nginx.conf").write_text(self._configuration(port))

    def url(self, block: str) -> str:
        """Return the address of the server through *block*, with a slash at its end."""
        scheme = "https" if block in _TLS else "http"
        return f"{scheme}://127.0.0.1:{self._ports[block]}/{_BELOW.get(block, '')}"

    def port(self, block: str) -> int:
        return self._ports[block]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        self._process = subprocess.Popen(
            ["nginx", "-p", str(self._folder), "-c", "nginx.conf", "-e", "error.log"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # `kill` ends its workers, too
        )
        until(lambda: (self._folder / "nginx.pid").is_file())
        until(lambda: accepts(self._ports["sockets"]))

    def kill(self) -> None:
        """End all of its processes as a crash would."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_SHUT_DOWN_S)
            self._process = None

    def _configuration(self, port: int) -> str:
        certificate = f"ssl_certificate {self.authority}; ssl_certificate_key {self.authority};"
        to = f"http://127.0.0.1:{port}"
        blocks = (
            block.format(port=self._ports[name], certificate=certificate, to=to)
            for name, block in _BLOCKS.items()
        )
        servers = "\n".join(f"server {{ {block} }}" for block in blocks)
        temporary = "\n".join(
            f"{kind}_temp_path {self._folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;" if os.geteuid() == 0 else ""
        return f"""{user} worker_processes 1; daemon off; pid nginx.pid;
events {{ worker_connections 256; }}
http {{
access_log off;
{temporary}
{_MAP}
{servers}
}}
"""


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
