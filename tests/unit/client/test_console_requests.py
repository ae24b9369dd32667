"""What the forms of the console would send, and the commands that they show for it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.hosts import make_key
from tests.unit.client.fake_feed import CONSOLE
from tidings.client.cli.main import main
from tidings.core.settings.documents import SETTINGS
from tidings.server.running import Server

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
HOSTILE = "it's <b>; rm $HOME"
JSON_TEXT = '{"a": "it\'s", "n": 12345678901234567890}'  # JavaScript would change the number
POST = {"event": "insert", "type": "video", "id": HOSTILE, "parents": ["a,b"], "data": JSON_TEXT}
FILTER = {"types": ["video"], "parents": [], "ids": [], "erasures": False}
CONSUMER = {"name": "search", "from": "now", **FILTER}
HOOK = {**CONSUMER, "url": "https://a.example/x", "format": "tidings", "attempts": 4}
KEY = {"roles": ["read"], "types": [], "parents": ["user/42"], "expires": "24h", "label": HOSTILE}


def run(expression: str) -> Any:
    """Return the value of *expression*, in which `of` is the module `requests.js`."""
    module = (CONSOLE / "requests.js").as_uri()
    script = (
        f"const of = await import({module!r});"
        "const attempt = (does) => { try { return does(); } catch ({ field, rule }) "
        "{ return { field, rule }; } };"
        f"console.log(JSON.stringify({expression} ?? null));"
    )
    command = ["node", "--no-warnings", "--input-type=module", "-e", script]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Server(data=tmp_path_factory.mktemp("data")) as host:
        yield host


def made(server: Server, plan: str, *values: Any, has_password: bool = False) -> dict[str, Any]:
    """Return a plan for the feed `main`, with its request for curl and its command."""
    given = ", ".join(json.dumps(each) for each in values)
    context = json.dumps({"host": server.url, "feed": "main", "hasPassword": has_password})
    found = run(
        f"(() => {{ const plan = of.{plan}({given}); return {{ ...plan, "
        f"curl: of.curlText(plan.request, {context}), "
        f"command: plan.words && of.commandText(plan.words, {context}, plan.input) }}; }})()"
    )
    assert isinstance(found, dict)
    return found


def _shell(text: str) -> str:
    """Run *text* in a shell; return what it prints."""
    done = subprocess.run(["sh", "-c", text], check=True, capture_output=True, text=True)
    return done.stdout


def _cli(text: str) -> str:
    """Run the command of *text* in this process."""
    words = shlex.split(text.replace("\\\n", ""))
    stdin = None
    if words[0] == "echo":
        stdin, words = words[1], words[3:]
    assert words[0] == "tidings"
    done = CliRunner().invoke(main, words[1:], input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("text", "values"),
    [("a, b,,", ["a", "b"]), ('["a,b","c"]', ["a,b", "c"]), ("", []), ("[a]", ["[a]"])],
)
def test_a_list_is_read_from_its_text(text: str, values: list[str]) -> None:
    """And is written as a text that is read as the same list."""
    assert run(f"of.listOf({json.dumps(text)}, 'types')") == values
    assert run(f"of.listOf(of.listText({json.dumps(values)}), 'types')") == values


def test_json_is_sent_in_one_line_as_it_was_written() -> None:
    written = json.dumps('\n{\n  "a": 1.10\n}\n')
    assert run(f"of.jsonOf({written}, 'data')") == '{ "a": 1.10 }'


@pytest.mark.parametrize(
    ("call", "field", "rule"),
    [
        ("of.jsonOf('{', 'data')", "data", "is not JSON: "),
        ("of.listOf('[\"a\"', 'types')", "types", "is not JSON: "),
        ("of.listOf('[\"a\",1]', 'types')", "types", "must be a JSON array of strings"),
        ("of.numberOf('1.5', 'rate')", "rate", "must be a whole number"),
        ("of.keyPlan('main', {roles: []})", "roles", "choose at least one role"),
    ],
)
def test_an_error_names_its_field(call: str, field: str, rule: str) -> None:
    found = run(f"attempt(() => {call})")
    assert found["field"] == field
    assert found["rule"].startswith(rule)


@pytest.mark.parametrize("more", [{}, {"tags": ["t"]}])
def test_a_post_is_the_same_by_curl_and_by_command(server: Server, more: dict[str, Any]) -> None:
    """Both append the operation of the preview, whatever characters it has."""
    plan = made(server, "postPlan", "main", {**POST, **more})
    _shell(plan["curl"])
    _cli(plan["command"])
    entries = httpx.get(f"{server.url}feeds/main/log").json()
    first, last = entries["oldest"], entries["current"]
    found = httpx.get(f"{server.url}feeds/main/log", params={"from": first, "to": last}).json()
    *_, one, other = [{k: v for k, v in each["data"].items()} for each in found["entries"]]
    for each in (one, other):
        each.pop("timestamp")
    assert one == other
    assert (one["id"], one["parents"], one["data"]) == (HOSTILE, ["a,b"], json.loads(JSON_TEXT))
    assert one.get("tags", []) == more.get("tags", [])


@pytest.mark.parametrize("plan", ["consumerPlan", "hookPlan"])
def test_a_filter_is_created_and_changed(server: Server, plan: str) -> None:
    """A new name is not overwritten; a change removes the filters that are not given."""
    values = HOOK if plan == "hookPlan" else CONSUMER
    values = {**values, "name": plan.lower()}
    kind = "hooks" if plan == "hookPlan" else "consumers"
    url = f"{server.url}feeds/main/{kind}/{values['name']}"
    create = made(server, plan, "main", values)
    assert create["button"] == "Create"
    assert httpx.get(url).status_code == 404
    _cli(create["command"])
    assert "exists" in _shell(create["curl"])
    existing = httpx.get(url).json()
    assert existing["types"] == ["video"]

    wanted = {**values, "types": [], "parents": ["user/42"]}
    change = made(server, plan, "main", wanted, existing)
    assert {each["name"]: [each["before"], each["after"]] for each in change["changes"]} == {
        "types": ["video", "every type"],
        "parents": ["any parents", "user/42"],
    }
    _cli(change["command"])
    by_command = httpx.get(url).json()
    _shell(made(server, plan, "main", values, by_command)["curl"])
    _shell(change["curl"])
    by_curl = httpx.get(url).json()
    assert by_command == by_curl
    assert (by_curl.get("types"), by_curl["parents"]) == (None, ["user/42"])
    assert by_curl["position"] == existing["position"]


def test_a_feed_is_created_by_curl_and_by_command(tmp_path: Path) -> None:
    values = {"name": "orders", "object_url": "https://a.example/{{type}}/{{id}}", "leave": True}
    with Server(data=tmp_path) as host:
        made_by_curl = made(host, "feedPlan", {**values, "forget_after_days": 30})
        _shell(made_by_curl["curl"])
        assert httpx.get(f"{host.url}feeds/orders").json()["settings"]["leave"] is True
        words = " ".join(made_by_curl["words"])
        assert words == (
            "feeds create orders --object-url https://a.example/{{type}}/{{id}} "
            "--leave on --forget-after 30"
        )


def test_the_form_of_a_feed_has_the_settings_that_the_host_describes(tmp_path: Path) -> None:
    """All but lists. The command has the option of each."""
    with Server(data=tmp_path) as host:
        schemas = httpx.get(f"{host.url}openapi.json").json()["components"]["schemas"]
        fields = run(f"of.settingFields({json.dumps(schemas['FeedSettings']['properties'])})")
        values = {"switch": True, "number": 60, "text": "/x", "select": "oplog"}
        given = {each["name"]: values[each["kind"]] for each in fields}
        plan = made(host, "feedPlan", {**given, "name": "orders", "push_lanes": 2})

        assert [each["name"] for each in fields] == [
            each for each in SETTINGS if each != "resources"
        ]
        assert [each["hint"] for each in fields if each["name"] == "leave"] == [
            SETTINGS["leave"].meaning
        ]
        options = [each for each in plan["words"] if each.startswith("--")]
        assert options == [f"--{SETTINGS[name].option}" for name in given]
        _cli(shlex.join(["tidings", *plan["words"], "--url", host.url]))
        assert httpx.get(f"{host.url}feeds/orders").json()["settings"]["forget_after_days"] == 60


def test_a_key_is_created_by_curl_and_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both keys have the rights of the form."""
    with Server(data=tmp_path) as host:
        admin = make_key(host, "--role", "read", "--role", "admin")
        monkeypatch.setenv("TIDINGS_PASSWORD", admin)
        plan = made(host, "keyPlan", "main", KEY, has_password=True)
        made_keys = json.loads(_shell(plan["curl"]))["key"], _cli(plan["command"]).strip()
        for key in made_keys:
            found = httpx.get(f"{host.url}feeds/main/access", auth=("", key)).json()
            assert found["roles"] == [{"role": "read", "types": None, "parents": ["user/42"]}]


def test_a_key_has_only_what_was_chosen() -> None:
    plan = run(f"of.keyPlan('main', {json.dumps(KEY)})")
    assert plan["request"]["body"] == {
        "roles": ["read"],
        "parents": ["user/42"],
        "expires": "24h",
        "label": HOSTILE,
    }
    assert "for the parents user/42 only, valid for 24h" in plan["effect"]


def test_a_change_that_no_command_makes_has_none() -> None:
    """The command cannot turn `--erasures` off; the request can."""
    existing = {**CONSUMER, "erasures": True}
    plan = run(f"of.consumerPlan('main', {json.dumps(CONSUMER)}, {json.dumps(existing)})")
    assert plan["words"] is None
    assert plan["request"]["body"] == {"types": ["video"]}
    assert [each["name"] for each in plan["changes"]] == ["erasures"]


def test_no_preview_contains_a_credential() -> None:
    """It reads the password from a variable."""
    context = {"host": "http://a.example/", "feed": "main", "hasPassword": True}
    request = {"method": "GET", "path": "/x"}
    found = run(f"of.curlText({json.dumps(request)}, {json.dumps(context)})")
    assert '-u ":$TIDINGS_PASSWORD"' in found
