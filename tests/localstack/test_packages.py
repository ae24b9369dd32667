"""What LocalStack is given on this machine, and what is said where something is missing."""

from __future__ import annotations

import subprocess
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.localstack import packages


def java(folder: Path, text: str) -> None:
    """The one program of that name on the path, in *folder*."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "there is no java here"), ("echo 'java version \"11.0.2\"' >&2", "java is older")],
    ids=["none", "old"],
)
def test_a_missing_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, sentence: str
) -> None:
    """Before anything is started, in one sentence that says which one is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    if text is not None:
        java(tmp_path, text)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(packages.Missing, match=rf"needs Java 17 or newer.*{sentence}"):
        packages.engine(tmp_path / "files", tmp_path / "pid")


@pytest.mark.java
def test_the_engine_gets_the_options_behind_the_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LocalStack's own, without its patch; the number of the process is left for who ends it."""
    java(tmp_path, 'if [ "$1" = -version ]; then echo \'"17.0"\' >&2; else echo "$@"; fi')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    packages.engine(tmp_path / "files", tmp_path / "pid")

    shim = tmp_path / "files" / packages.JAVA
    given = ["-Xmx256m", "-javaagent:x.jar", "-jar", "y.jar", "-port", "1", "-inMemory"]
    said = subprocess.run([str(shim), *given], capture_output=True, text=True, check=True).stdout

    assert said.endswith("ServerRunner -disableTelemetry -port 1 -inMemory\n")
    assert "javaagent" not in said
    assert (tmp_path / "pid").read_text().strip().isdigit()


def test_the_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """In the group where LocalStack looks for executors, under the name that it is told."""
    folder = Path(packages.plugin(tmp_path).partition(":")[0])
    (about,) = Distribution.discover(path=[str(folder)])
    (found,) = about.entry_points

    assert (found.group, found.name) == ("localstack.lambda.runtime_executor", packages.EXECUTOR)
    module, _, name = found.value.partition(":")
    source = packages.PLUGIN / f"{module.replace('.', '/')}.py"
    assert f"class {name}(" in source.read_text()
