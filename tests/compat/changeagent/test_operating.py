"""Health, configuration, users, links, cluster and diagnostics, as operators find them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import bcrypt
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.compat.changeagent.client import Changes
from tests.compat.oplog.feed import ask
from tests.compat.oplog.wire import Answer, until
from tidings.aws.config.deployment import FUNCTIONS, HTTP_ROUTES
from tidings.aws.config.settings import SETTINGS, Settings
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.http.settings import WrongSetting
from tidings.server.running import Server

DRAIN_S = 60  # what changeagent gave requests when it ended


def config(changes: Changes, body: str | None = None, kind: str = "application/yaml") -> Answer:
    path = f"/feeds/{changes.feed}/config"
    if body is None:
        return ask(changes.port, "GET", path)
    return ask(changes.port, "PUT", path, {"content-type": kind}, body.encode())


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"down=true", 400),
        ("application/json", b'{"up":false}', 415),
    ],
)
def test_A33_health_is_marked_by_a_form(
    shared: Changes, kind: str, body: bytes, status: int
) -> None:
    """Any other body is refused with a list of errors, and changes nothing."""
    answer = ask(shared.port, "PUT", "/health", {"content-type": kind}, body)

    assert answer.status == status
    assert [sorted(each) for each in json.loads(answer.body)] == [
        ["classification", "fieldNames", "message"]
    ]
    assert ask(shared.port, "GET", "/health").body == b"ok"


def test_A33_a_request_without_a_type_and_without_up_is_a_mistake(shared: Changes) -> None:
    assert ask(shared.port, "PUT", "/health").status == 400
    assert ask(shared.port, "PUT", "/health", {}, b"up=false").status == 415
    assert ask(shared.port, "GET", "/health").body == b"ok"


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_A33_health_is_marked_by_a_query(host: Server, headers: dict[str, str]) -> None:
    """Go reads a form from the query too; then neither a body nor a type is needed."""
    for up, told in (("false", b"marked down"), ("TRUE", b"ok")):
        answer = ask(host.port, "PUT", f"/health?up={up}", headers)

        assert (answer.status, answer.body) == (200, b"")
        assert ask(host.port, "GET", "/health").body == told


def test_A38_the_configuration_is_yaml(changes: Changes) -> None:
    """All keys; a PUT answers the new one; durations that are left out stay, the rest goes."""
    first = config(changes)
    assert (first.status, first.headers["content-type"]) == (200, "application/yaml")
    assert yaml.safe_load(first.body) == {
        "minPurgeRecords": 0,
        "minPurgeDuration": "0s",
        "electionTimeout": "10s",
        "heartbeatTimeout": "2s",
        "webHooks": [],
    }

    sample = (
        "minPurgeRecords: 123\nminPurgeDuration: 1h\nelectionTimeout: 10m\nheartbeatTimeout: 1s\n"
        "webHooks:\n- uri: http://foo.com\n  headers:\n    foo: bar\n- uri: http://bar.com\n"
    )
    set_ = yaml.safe_load(config(changes, sample, "text/yaml").body)
    assert set_ == yaml.safe_load(config(changes).body)
    assert set_["webHooks"] == [
        {"uri": "http://foo.com", "headers": {"foo": "bar"}},
        {"uri": "http://bar.com"},
    ]
    assert (set_["minPurgeRecords"], set_["minPurgeDuration"]) == (123, "1h0m0s")
    rest = yaml.safe_load(config(changes, "heartbeatTimeout: 300ms").body)
    assert (rest["minPurgeRecords"], rest["webHooks"]) == (0, [])
    assert (rest["electionTimeout"], rest["minPurgeDuration"]) == ("10m0s", "1h0m0s")


def test_A38_only_yaml_is_read(changes: Changes) -> None:
    """415 without a body; invalid YAML is 400."""
    answer = config(changes, "{}", "application/json")

    assert (answer.status, answer.body) == (415, b"")
    broken = config(changes, "a: [")
    assert broken.status == 400 and "Error parsing YAML" in json.loads(broken.body)["error"]


def users(host: Server, changes: Changes, file: Path) -> Result:
    where = [*host.locator, "--feed", changes.feed]
    return CliRunner().invoke(main, ["users", "import", str(file), *where])


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def get_as(changes: Changes, user: str, password: str) -> Answer:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ask(changes.port, "GET", changes.path, {"authorization": f"Basic {pair}"})


def test_A35_A36_A37_users_come_from_an_htpasswd_file(
    host: Server, changes: Changes, tmp_path: Path
) -> None:
    """Soon after it is imported; blank lines and comments mean nothing, a bad file does nothing."""
    file = tmp_path / "passwd"
    file.write_text(f"# ours\n\nfoo:{hashed('secret')}\n\nbar:{hashed('other')}\n")
    assert users(host, changes, file).exit_code == 0
    until(lambda: changes.ask().status == 401)
    refused = changes.ask()

    assert refused.body == b""
    assert refused.headers["www-authenticate"] == 'Basic realm="changeagent"'
    assert get_as(changes, "foo", "secret").status == get_as(changes, "bar", "other").status
    assert get_as(changes, "foo", "secret").status == 200
    assert get_as(changes, "foo", "other").status == get_as(changes, "baz", "x").status == 401
    assert changes.send(b"1").status == 401

    file.write_text("foo:plain\n")
    bad = users(host, changes, file)
    assert bad.exit_code == 1 and "line 1" in bad.output and "plain" not in bad.output
    assert get_as(changes, "foo", "secret").status == 200

    file.write_text(f"foo:{hashed('new')}\n")
    assert users(host, changes, file).exit_code == 0
    until(lambda: get_as(changes, "foo", "new").status == 200)
    assert get_as(changes, "bar", "other").status == 401


@pytest.mark.parametrize("prefix", ["", "/foo"])
def test_A40_links_are_absolute_and_honour_the_prefix(shared: Changes, prefix: str) -> None:
    """All routes are also served below a prefix, and every link of the root leads somewhere."""
    wanted = {"accept": "application/json"}
    root = json.loads(ask(shared.port, "GET", f"{prefix}/", wanted).body)
    base = f"http://127.0.0.1:{shared.port}/foo"

    names = ("changes", "diagnostics", "cluster", "config", "health")
    assert root == {name: f"{base}/{name}" for name in names}
    below = json.loads(ask(shared.port, "GET", f"{prefix}/diagnostics").body)
    links = [*root.values(), *(each for each in below.values() if str(each).startswith("http"))]
    assert {"id", "stack", "raft", "memory", "cpu", "arch", "os", "maxprocs"} == set(below)
    for link in links:
        path = link.removeprefix(f"http://127.0.0.1:{shared.port}")
        assert ask(shared.port, "GET", path).status == 200, link


def test_A41_a_prefix_ends_without_a_slash() -> None:
    """Or no function starts, in changeagent's words."""
    given = {setting.variable: "x" for setting in SETTINGS if setting.default is None}

    assert Settings.read(given).url_prefix == ""
    assert Settings.read({**given, "TIDINGS_URL_PREFIX": "foo"}).url_prefix == "/foo"
    with pytest.raises(WrongSetting, match="Invalid URI prefix: Must not end with a slash"):
        Settings.read({**given, "TIDINGS_URL_PREFIX": "foo/"})


def test_A42_whatever_is_in_flight_ends_within_a_minute() -> None:
    """Lambda lets invocations end when a stage is deployed; none of these takes as long."""
    answering = {route.function for route in HTTP_ROUTES} - {"stream", "list"}
    longest_s = max(each.timeout_s for each in FUNCTIONS if each.name in answering)
    waiting_s = limits.CHANGES_BLOCK_S_MAX + 2 * limits.CHANGES_SCAN_MS / 1000

    assert max(longest_s, waiting_s) <= DRAIN_S


def test_the_cluster_is_told_as_it_is(shared: Changes) -> None:
    """One member, which no request adds or removes."""
    here = f"127.0.0.1:{shared.port}"
    member = ask(shared.port, "GET", "/cluster/members/1")

    assert json.loads(ask(shared.port, "GET", "/cluster").body) == {
        "clusterId": "local",
        "members": {"1": here},
    }
    assert json.loads(ask(shared.port, "GET", "/cluster/members").body) == {"1": here}
    assert (member.status, member.body) == (200, here.encode())
    assert ask(shared.port, "GET", "/cluster/members/2").status == 404
    invalid = ask(shared.port, "GET", "/cluster/members/x")
    assert (invalid.status, invalid.body) == (400, b'{"error":"Invalid Node ID: x"}')
    for method, path in (("POST", "/cluster/members"), ("DELETE", "/cluster/members/1")):
        answer = ask(shared.port, method, path, {}, b"address=a:1")
        assert answer.status == 501 and "change the deployment" in answer.body.decode()


def test_diagnostics_tell_the_log_and_the_sandbox(shared: Changes) -> None:
    """The one member leads; of a machine nothing but the sandbox that answers is known."""
    number = shared.post("x")
    raft = json.loads(ask(shared.port, "GET", "/diagnostics/raft").body)

    assert (raft["state"], raft["leader"], raft["lastIndex"]) == ("Leader", "1", number)
    assert 0 < raft["firstIndex"] <= raft["appliedIndex"] == raft["committedIndex"]
    assert ask(shared.port, "GET", "/diagnostics/raft/state").body == b"Leader"
    assert ask(shared.port, "GET", "/diagnostics/id").body == b"1"
    assert json.loads(ask(shared.port, "GET", "/diagnostics/memory").body)["sys"] > 0
    assert json.loads(ask(shared.port, "GET", "/diagnostics/cpu").body)["numcpu"].isdigit()
    assert b"thread MainThread" in ask(shared.port, "GET", "/diagnostics/stack").body
    assert ask(shared.port, "GET", "/diagnostics/nope").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/feeds/main/config"), ("PUT", "/health"), ("DELETE", "/cluster/members/1")],
)
def test_a_page_that_is_named_may_administer(shared: Changes, method: str, path: str) -> None:
    """The preflight allows what the path takes, and the answer may be read."""
    origin = {"origin": "https://ops.example"}
    asked = {**origin, "access-control-request-method": method}
    allowed = ask(shared.port, "OPTIONS", path, asked)
    answered = ask(shared.port, method, path, {**origin, "content-type": "text/csv"}, b"x")

    assert allowed.status == 204
    assert method in allowed.headers["access-control-allow-methods"].split(", ")
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    assert answered.status in (415, 501)
    assert answered.headers["access-control-allow-origin"] == "https://ops.example"
