"""The commands of PRODUCTION.md, in order and in a folder; the unit's command in place of systemd.

The functions below replace commands that need root or systemd; `systemctl` starts the command of
the unit, without its restrictions. Packages are installed already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.source import ROOT
from tidings.server import processes

BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs/operations/PRODUCTION.md").read_text()
UNIT = (ROOT / "examples/tidings.service").read_text()
_SHELL = """
useradd() { :; }
chgrp() { :; }
systemd-analyze() { :; }
trap 'kill $(jobs -p)' EXIT
systemctl() {
    case "$1" in
        enable) mkdir -m 700 -p /var/lib/tidings /var/lib/tidings-backups
            %s &
            server=$!
            until curl -sf --cacert /etc/tidings/ca.pem https://127.0.0.1:8042/health
            do kill -0 $server; sleep 0.1; done ;;
        reload) kill -HUP $server
            until tidings tail --from 0 --count 1 --password-file /etc/tidings/read.txt
            do kill -0 $server; done ;;
    esac
}
"""


@pytest.mark.curl
def test_a_server_in_production(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("opt", "root"):
        (tmp_path / name).mkdir()
    command = re.search(r"^ExecStart=(.*?[^\\])$", UNIT, re.S | re.M)
    assert command
    script = _SHELL % command[1] + "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M))
    for pattern, ours in (
        (r"/opt/tidings/bin/tidings", "tidings"),
        (r"^python3 -m venv .*$|^/opt/.*pip install .*$", ":"),
        (r" -g tidings", ""),
        # A busy machine may need longer.
        (
            r"^sleep 5$",
            "until curl -sf http://127.0.0.1:8052/health; do kill -0 $!; sleep 0.1; done",
        ),
        (r"serve --data /var/lib/tidings ", r"\g<0>--port 8042 "),
        (r"\b8042\b", str(processes.free_port())),
        (r"\b8052\b", str(processes.free_port())),
        (r"(?<![\w./])/(etc|opt|root|var)/", rf"{tmp_path}/\1/"),
    ):
        script = re.sub(pattern, ours, script, flags=re.M)
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        # A run of tests under `nohup` ignores SIGHUP, and so would the server.
        ["env", "--default-signal=HUP", "bash", "-euc", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("insert order/1") >= 3
