"""Servers for the tests that are jars: fetched once by Maven, each run in a Java of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FETCH_S = 300  # some 50 MB once

_CACHE = Path.home() / ".cache" / "tidings"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidings</groupId><artifactId>tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>"""


class Jars(NamedTuple):
    """What Maven calls *group*:*artifact*:*version*, with all that it needs; kept as *name*."""

    name: str
    group: str
    artifact: str
    version: str

    @property
    def _cache(self) -> Path:
        return _CACHE / self.name / self.version

    def missing(self) -> str:
        """Return what the machine lacks to run them; "" for nothing."""
        if shutil.which("java") is None:
            return "Java is not installed"
        if not self._cache.is_dir() and shutil.which("mvn") is None:
            return f"Maven is not installed, and {self.name} was never fetched"
        return ""

    def fetched(self) -> Path:
        """Return the folder of the libraries, after fetching them if needed."""
        if not self._cache.is_dir():
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._cache.parent) as folder:
                pom = _POM.format(**self._asdict())
                (Path(folder) / "pom.xml").write_text(pom)
                goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
                command = ["mvn", "-q", "-B", *goal]
                subprocess.run(command, cwd=folder, check=True, timeout=FETCH_S)
                with suppress(OSError):  # another process has fetched them in the meantime
                    (Path(folder) / "jars").rename(self._cache)
        return self._cache

    def java(self, *main: str) -> list[str]:
        """Return the command for a class and its arguments, with a small heap and a quick start."""
        quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *quick, "-cp", f"{self.fetched()}/*", *main]
