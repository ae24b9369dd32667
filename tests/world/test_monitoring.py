"""`examples/monitoring` with a real Prometheus: its rules, one alert, and the dashboard."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from infra.names import PAGE
from tests.compat.oplog.feed import op
from tests.compat.oplog.wire import until
from tests.contract.answering import Answer, answering
from tests.docs.test_pages import SECTIONS, anchor
from tests.unit.server.test_webhooks import create
from tests.world.prometheus import Prometheus
from tidings.server.running import Server

pytestmark = [pytest.mark.prometheus, pytest.mark.promtool]
EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
GUIDE = EXAMPLES.parents[1] / "docs/operations/MONITORING.md"
DASHBOARD = json.loads((EXAMPLES / "dashboard.json").read_text())
EXPRESSIONS = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]
_NAME = re.compile(r"\b(?:tidings|process)_\w+")
# Their values are 0 while all is well, and a comparison then has no result.
QUIET = {"tidings_consumer_fell_off"}


def test_the_rules_load_and_pass_their_tests() -> None:
    for command in ("check config prometheus.yml", "test rules alerts_test.yml"):
        done = subprocess.run(
            ["promtool", *command.split()],
            cwd=EXAMPLES,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tested = yaml.safe_load((EXAMPLES / "alerts_test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tested
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == RULES.keys()


def test_each_alert_names_a_section_of_the_runbooks() -> None:
    anchors = {anchor(title) for title, _, _ in SECTIONS}
    for name, rule in RULES.items():
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert page == PAGE and section in anchors, name
    (server,) = [text for title, _, text in SECTIONS if title == "A server raises an alert"]
    assert [name for name in RULES if f"`{name}`" not in server] == []


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Yield a Prometheus with the files of the example.

    It scrapes a server with some of everything: clients, a consumer that lags, a chained feed, a
    webhook. Only the times and the address differ from the example.
    """
    with ExitStack() as stack:
        upstream = stack.enter_context(Server())
        chain = ("--feeds", "main,copy", "--chain", f"copy={upstream.url}feeds/main")
        private = ("--setting", "TIDINGS_HOOKS_PRIVATE=true")
        server = stack.enter_context(Server(*chain, *private))
        prometheus = _prometheus(tmp_path_factory.mktemp("prometheus"), server.port)
        stack.enter_context(prometheus.running())
        httpx.post(f"{upstream.url}ops", json=op("x"))
        made = httpx.put(f"{server.url}feeds/main/consumers/slow", json={"from": "oldest"})
        assert made.status_code < 300, made.text
        endpoint = stack.enter_context(answering(Answer(400)))
        create(server, endpoint.url, "picky", "--attempts", "1")
        events = {"accept": "text/event-stream"}
        url = f"{server.url}ops?cursor=now"
        stack.enter_context(httpx.stream("GET", url, headers=events, timeout=None))
        # The client reads only one message, so it would wait long for the end of the connection.
        client = stack.enter_context(connect(server.ws_url, close_timeout=0.1))
        client.send(json.dumps({"action": "subscribe", "cursor": "now"}))
        assert "subscribed" in str(client.recv(60))
        until(lambda: _use(server) and all(_has_data(prometheus, each) for each in EXPRESSIONS))
        yield prometheus


def _prometheus(folder: Path, port: int) -> Prometheus:
    """Return one with the files of the example, but with short times and another address."""
    rules = (EXAMPLES / "alerts.yml").read_text()
    for text, quick in (("age_seconds > 600", "age_seconds > 1"), ("for: 5m", "for: 1s")):
        assert text in rules
        rules = rules.replace(text, quick)
    (folder / "alerts.yml").write_text(rules)
    config = (EXAMPLES / "prometheus.yml").read_text()
    for text, mine in (("localhost:8042", f"127.0.0.1:{port}"), ("15s", "250ms")):
        assert text in config
        config = config.replace(text, mine)
    return Prometheus(folder, config)


def _use(server: Server) -> bool:
    """Send a request that is accepted, and one that is not."""
    assert httpx.get(f"{server.url}unknown").status_code == 404
    return httpx.post(f"{server.url}ops", json=op("x")).status_code == 204


def _has_data(prometheus: Prometheus, expression: str) -> bool:
    """Return True if *expression* of the dashboard has a number."""
    text = expression.replace("$__rate_interval", "5m")
    text = text.replace("$job", ".*").replace("$instance", ".*")
    (name,) = set(_NAME.findall(text))
    if name in QUIET:
        is_valid = prometheus.get("query", query=text)["resultType"] == "vector"
        return is_valid and bool(prometheus.query(name))
    return any(not math.isnan(float(each["value"][1])) for each in prometheus.query(text))


def test_an_alert_fires_for_a_consumer_that_lags(scraped: Prometheus) -> None:
    """It has the name of the consumer, and no other alert about the feed fires."""
    until(lambda: scraped.query('ALERTS{alertname="TidingsConsumerLags",alertstate="firing"}'))
    firing = [each for each in scraped.get("alerts")["alerts"] if each["state"] == "firing"]
    lags = {
        each["labels"]["consumer"]: each
        for each in firing
        if each["labels"]["alertname"] == "TidingsConsumerLags"
    }
    assert "slow" in lags
    assert lags["slow"]["annotations"]["summary"].startswith("slow of main is ")
    assert lags["slow"]["labels"]["severity"] == "ticket"
    names = {each["labels"]["alertname"] for each in firing}
    of_the_machine = {"TidingsDiskFull"}
    assert names <= {"TidingsConsumerLags", "TidingsMessagesParked"} | of_the_machine, firing


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_of_the_dashboard_has_data(scraped: Prometheus, expression: str) -> None:
    assert _has_data(scraped, expression)


def test_an_expression_without_a_metric_has_no_data(scraped: Prometheus) -> None:
    """So that the test above can fail."""
    assert not _has_data(scraped, "rate(tidings_frames_sent_total[")
    assert not _has_data(scraped, "tidings_no_such_metric")


def test_the_files_of_the_guide_are_those_of_the_example(tmp_path: Path) -> None:
    """Without comments and annotations, and with two alerts only."""
    config, rules = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "prometheus.yml").write_text(config)
    (tmp_path / "alerts.yml").write_text(rules)
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert yaml.safe_load(config) == yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    for rule in yaml.safe_load(rules)["groups"][0]["rules"]:
        assert rule.items() <= RULES[rule["alert"]].items()


def test_the_metrics_of_the_guide_and_of_the_dashboard_exist(scraped: Prometheus) -> None:
    """The expressions of MONITORING.md are valid, too."""
    expressions = re.findall(r"^\| [^|]+\? \| `([^`]+)` \|$", GUIDE.read_text(), re.M)
    assert len(expressions) >= 5
    for each in expressions:
        assert until(lambda each=each: scraped.query(each)), each  # type: ignore[misc]
