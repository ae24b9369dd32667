"""The wheel: its contents, its dependencies, and that it runs without a checkout."""

from __future__ import annotations

import email
import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from infra import ROOT, SOURCE, build_release
from tidings.core.version import VERSION
from tidings.http.endpoints.status import CLIENT

PACKAGES = {
    *("core", "http", "assembly", "aws", "client", "agent", "admin"),
    *("sync", "pipelines", "lake", "lineage", "spark", "server"),
}
READY_S = 180.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build_release.wheel(folder, 1_795_000_000)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and third parties from this one, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", where], text=True).strip())
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "third_parties.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_it_is_named_after_the_version(wheel: Path) -> None:
    """Which is written once, in the core."""
    assert wheel.name == f"tidings-{VERSION}-py3-none-any.whl"


def test_it_holds_every_package_and_its_types(names: set[str]) -> None:
    """Type checkers of other projects read the annotations because of `py.typed`."""
    packages = {name.split("/")[1] for name in names if re.match(r"tidings/\w+/", name)}
    assert packages == PACKAGES
    assert {"tidings/__init__.py", "tidings/__main__.py", "tidings/py.typed"} <= names


def test_it_holds_every_module(names: set[str]) -> None:
    """Each Python file of each package, and no compiled one."""
    modules = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}

    assert len(modules) > 300
    assert modules - names == set()
    assert [name for name in names if name.endswith(".pyc")] == []


def test_it_holds_what_a_server_shows(names: set[str]) -> None:
    """Every file of the page and of its client."""
    page = {path.name for path in (ROOT / "console").iterdir() if path.is_file()}

    client = {path.name for path in (ROOT / CLIENT).iterdir()}
    assert {f"tidings/server/packed/{CLIENT}/{each}" for each in client} <= names
    assert {f"tidings/server/packed/console/{each}" for each in page} <= names


def test_it_holds_nothing_else(names: set[str]) -> None:
    """Not the tests, the infrastructure, the benchmarks or the documents."""
    ours = re.compile(rf"tidings/|tidings-{re.escape(VERSION)}\.dist-info/")
    foreign = re.compile(r"(^|/)(tests|infra|bench|docs|examples|node_modules|vendor)/")

    assert [name for name in names if not ours.match(name) or foreign.search(name)] == []


def test_a_client_asks_for_little(wheel: Path) -> None:
    """Four packages; boto3, Spark and the server's needs come with an extra, the CDK with none."""
    metadata = email.message_from_bytes(
        zipfile.ZipFile(wheel).read(f"tidings-{VERSION}.dist-info/METADATA")
    )
    wanted = metadata.get_all("Requires-Dist") or []
    always = {re.split(r"[^\w-]", each)[0] for each in wanted if "extra ==" not in each}

    assert always == {"click", "httpx", "rich", "websockets"}
    assert {"agent", "aws", "serve", "pipeline", "spark"} <= set(
        metadata.get_all("Provides-Extra") or []
    )


def test_it_is_described(wheel: Path) -> None:
    """The metadata names no address, because the repository has no public one."""
    metadata = email.message_from_bytes(
        zipfile.ZipFile(wheel).read(f"tidings-{VERSION}.dist-info/METADATA")
    )

    assert "in one process or on AWS" in metadata["Summary"]
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Keywords"]
    assert metadata.get_all("Project-URL") is None


def test_the_page_installs_this_version() -> None:
    """By its file name; the extra is one that exists."""
    page = (ROOT / "docs/start/INSTALL.md").read_text()

    assert f"pip install './dist/tidings-{VERSION}-py3-none-any.whl[serve]'" in page


def test_a_checkout_installs_it(tmp_path: Path) -> None:
    """As in the README, but the packages of others are installed already."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--target"]
    pip = [sys.executable, "-m", "pip", "install", *options, str(tmp_path)]
    subprocess.run([*pip, ".[serve]"], cwd=ROOT, check=True)

    assert (tmp_path / "tidings" / "server" / "packed" / "console" / "index.html").is_file()
    assert (tmp_path / "bin" / "tidings").is_file()


def test_commands_need_no_checkout(python: Path, tmp_path: Path) -> None:
    """`tidings tail --help` and `post --help`, without boto3 or Spark being imported."""
    program = (
        "import sys; from tidings.client.cli import main as cli;"
        "[cli.main([each, '--help'], standalone_mode=False) for each in ('tail', 'post')];"
        "print(sorted({each.partition('.')[0] for each in sys.modules}))"
    )
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout.count("Usage:") == 2
    assert not {"boto3", "botocore", "pyspark", "aws_cdk"} & set(
        re.findall(r"'(\w+)'", done.stdout.splitlines()[-1])
    )


@pytest.fixture
def server(python: Path, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`tidings serve --demo` of the wheel, in an empty folder: its address, and its process."""
    command = [str(python), "-m", "tidings", "serve", "--demo", "--port", "0", "--data", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("tidings serve ready "), line
            yield line.split()[3], process
        finally:
            process.kill()


def test_a_server_needs_no_checkout(
    server: tuple[str, subprocess.Popen[str]], python: Path, tmp_path: Path
) -> None:
    """`tidings tail` receives its demo, its page is there, and Ctrl-C ends it with 0."""
    url, process = server
    tail = [str(python), "-m", "tidings.client.cli.main", "tail", "--url", url]
    tail += ["--from", "oldest", "--count", "3"]  # the log: it waits for more
    heard = subprocess.run(
        tail, cwd=tmp_path, capture_output=True, text=True, timeout=READY_S, check=True
    )
    page = httpx.get(f"{url}console/", timeout=READY_S)
    process.send_signal(signal.SIGINT)

    assert heard.stdout.count("video/") == 3
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert process.wait(READY_S) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["data"]
