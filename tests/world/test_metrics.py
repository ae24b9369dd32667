"""`/metrics` by the rules of promtool, and scraped without a pause under load."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import httpx
import pytest

from tests.compat.oplog.feed import op
from tests.compat.oplog.wire import PATIENCE_S, until
from tests.hosts import make_key
from tests.unit.client.command import tidings
from tests.world.prometheus import Prometheus
from tidings.server.running import Server

pytestmark = [pytest.mark.prometheus, pytest.mark.promtool]
PRODUCERS, POSTS, OPERATIONS = 6, 40, 20
SCRAPERS = 2


def test_promtool_has_nothing_to_object_to(tmp_path: Path) -> None:
    """After some of everything: posts, refusals, a consumer, a chained feed."""
    with (
        Server() as upstream,
        Server("--feeds", "main,copy", "--chain", f"copy={upstream.url}feeds/main") as server,
    ):
        for base in (upstream.url, server.url):
            assert httpx.post(f"{base}ops", json=op("x")).status_code == 204
        assert httpx.post(f"{server.url}ops", json={"event": "no"}).status_code == 400
        for name in ("one", "two"):
            made = httpx.put(f"{server.url}feeds/main/consumers/{name}", json={"from": "oldest"})
            assert made.status_code < 300, made.text
        until(
            lambda: (
                'log_head{feed="copy"} 1'
                in httpx.get(f"{server.url}metrics", timeout=PATIENCE_S).text
            )
        )
        text = httpx.get(f"{server.url}metrics", timeout=PATIENCE_S).text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert 'tidings_consumer_lag{feed="main",consumer="one"}' in text
    assert 'tidings_relay_lag{feed="copy"}' in text


def _metrics(server: Server) -> str:
    return httpx.get(f"{server.url}metrics", timeout=PATIENCE_S).text


def _prometheus(folder: Path, port: int) -> Prometheus:
    """Return one that scrapes *port* several times a second, by as many jobs as there are."""
    jobs = [
        {"job_name": f"job{number}", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for number in range(SCRAPERS)
    ]
    times = {"scrape_interval": "100ms", "scrape_timeout": "100ms"}
    return Prometheus(folder, json.dumps({"global": times, "scrape_configs": jobs}))


@contextmanager
def _in_threads(*tasks: Callable[[threading.Event], None]) -> Iterator[list[str]]:
    """Run *tasks* in threads until the block ends; yield what went wrong in them."""
    errors: list[str] = []
    over = threading.Event()

    def run(task: Callable[[threading.Event], None]) -> None:
        try:
            task(over)
        except Exception as error:  # noqa: BLE001 the test looks at it
            errors.append(repr(error))

    threads = [threading.Thread(target=run, args=[task]) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _scrape(url: str, over: threading.Event) -> None:
    with httpx.Client(timeout=PATIENCE_S) as client:
        while not over.is_set():
            assert client.get(f"{url}metrics").status_code == 200


def _back_up(server: Server, folder: Path, over: threading.Event) -> None:
    number = 0
    while not over.is_set():
        number += 1
        done = tidings("backup", str(folder / f"backup-{number}"), "--data", str(server.data))
        assert done.returncode == 0, done.stderr


def _produce(url: str, headers: Mapping[str, str], number: int) -> list[int]:
    """Return the status of each answer."""
    with httpx.Client(timeout=PATIENCE_S, headers=headers) as client:
        bodies = (
            [op(f"{number}-{post}-{each}") for each in range(OPERATIONS)] for post in range(POSTS)
        )
        return [client.post(f"{url}ops", json=body).status_code for body in bodies]


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
def test_scrapes_under_load_stop_nothing(tmp_path: Path, keyed: bool) -> None:
    """Producers, with or without a key, backups, and scrapers that never pause.

    Every request is answered, and the server still ends in order.
    """
    with Server(data=tmp_path / "data") as server:
        key = make_key(server, "--role", "ingest") if keyed else ""
        headers = {"authorization": f"Bearer {key}"} if keyed else {}
        prometheus = _prometheus(tmp_path, server.port)
        tasks = [partial(_scrape, server.url)] * SCRAPERS
        with (
            prometheus.running(),
            _in_threads(*tasks, partial(_back_up, server, tmp_path)) as errors,
            ThreadPoolExecutor(PRODUCERS) as pool,
        ):
            statuses = pool.map(partial(_produce, server.url, headers), range(PRODUCERS))
            assert set(chain(*statuses)) == {204}, server.errors()
            for job in range(SCRAPERS):
                head = f'tidings_log_head{{job="job{job}"}}'
                until(partial(prometheus.has, head, PRODUCERS * POSTS))
                until(partial(prometheus.has, f'up{{job="job{job}"}}', 1))
        assert errors == []
        assert server.stop() == 0
