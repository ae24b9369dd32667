"""`/openapi.json`: generators of others make clients that post, read changes, and manage.

`make test-generators` runs all of them, and each other run openapi-python-client alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.hosts import make_key
from tests.unit.pipelines.maven import Jars
from tests.world import installing
from tidings.server.running import Server

CLIENTS = Path(__file__).parent / "generated"
PATIENCE_S = 600.0  # a compiler of a fresh machine fetches what it needs
GENERATOR = Jars("openapi-generator", "org.openapitools", "openapi-generator-cli", "7.25.0")
CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
COMPILER = {"strict": True, "target": "es2022", "module": "nodenext", "types": []}


@pytest.fixture(scope="module")
def document(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the document of a server."""
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(httpx.get(f"{server.url}openapi.json").content)
    return path


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def generate(document: Path, folder: Path, name: str, **options: str) -> None:
    given = ",".join(f"{option}={value}" for option, value in options.items())
    extra = ["--additional-properties", given] if given else []
    main = ["org.openapitools.codegen.OpenAPIGenerator", "generate", "-i", str(document)]
    run(folder, *GENERATOR.java(*main, "-g", name, "-o", str(folder), *extra))


def attrs_client(document: Path, folder: Path) -> list[str | Path]:
    program = Path(sys.executable).with_name("openapi-python-client")
    run(folder, program, "generate", "--path", document, "--output-path", "made", "--meta", "none")
    (folder / "made").rename(folder / "tidings_client")
    return [sys.executable, CLIENTS / "attrs_client.py"]


def python(document: Path, folder: Path) -> list[str | Path]:
    generate(document, folder, "python")
    return [sys.executable, CLIENTS / "client.py"]


def go(document: Path, folder: Path) -> list[str | Path]:
    generate(document, folder, "go", withGoMod="false")
    (folder / "go.mod").write_text("module tidings\n\ngo 1.23\n")
    (folder / "use").mkdir()
    shutil.copy(CLIENTS / "main.go", folder / "use")
    run(folder, "go", "build", "-o", "client", "./use", CGO_ENABLED="0")
    return [folder / "client"]


def java(document: Path, folder: Path) -> list[str | Path]:
    generate(document, folder, "java", containerDefaultToNull="true")
    shutil.copy(CLIENTS / "Client.java", folder / "src/main/java")
    run(folder, "mvn", "-q", "-B", "compile", CLASSPATH, "-Dmdep.outputFile=paths")
    return ["java", "-cp", f"target/classes:{(folder / 'paths').read_text()}", "Client"]


def typescript_fetch(document: Path, folder: Path) -> list[str | Path]:
    generate(document, folder, "typescript-fetch", importFileExtension=".js")
    compiler = installing.node_folder() / "node_modules/typescript/bin/tsc"
    shutil.copy(CLIENTS / "client.ts", folder)
    options = {**COMPILER, "lib": ["es2022", "dom"], "skipLibCheck": True}
    configured = {"compilerOptions": options, "files": ["client.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(configured))
    (folder / "package.json").write_text('{"type": "module"}')
    run(folder, "node", compiler, "--project", folder)
    return ["node", folder / "client.js"]


MORE = (python, go, java, typescript_fetch) if os.environ.get("GENERATORS") == "all" else ()


@pytest.mark.parametrize("generator", [attrs_client, *MORE])
def test_a_generated_client_posts_reads_and_manages(
    document: Path,
    server: Server,
    spare: Iterator[str],
    tmp_path: Path,
    generator: Callable[[Path, Path], list[str | Path]],
) -> None:
    command = generator(document, tmp_path)
    feed = next(spare)
    roles = (f"--role={role}" for role in ("admin", "read", "ingest", "consume"))
    key = make_key(server, "--feed", feed, *roles)
    printed = run(tmp_path, *command, server.url.rstrip("/"), feed, key, PYTHONPATH=str(tmp_path))
    assert printed == "7 holds revoked search\n"


@pytest.mark.npm
def test_spectral_finds_no_problem(document: Path, tmp_path: Path) -> None:
    spectral = installing.node_folder() / "node_modules/.bin/spectral"
    rules = CLIENTS / "spectral.yaml"
    run(tmp_path, spectral, "lint", "--ruleset", rules, "--fail-severity", "warn", document)
