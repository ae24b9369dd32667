"""`tidings keys` against a stage with a stack and tables of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3
import pytest
from click.testing import CliRunner, Result

from tests.unit.admin.cloudformation import deployed
from tidings.aws.config.stages import CONTROL_OUTPUT, FEEDS_OUTPUT
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.cli.main import main
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import KeyStore, PresentedKey, parse
from tidings.core.model.feeds import HOST
from tidings.core.model.filters import Filter
from tidings.core.model.timestamps import to_ms
from tidings.core.settings.profiles import ProfileStore
from tidings.http.endpoints.keys import KeyRouter
from tidings.server.local import LocalAdmin

OUTPUTS = {CONTROL_OUTPUT: "control", FEEDS_OUTPUT: "main,orders"}
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyStore]:
    """Yield the keys of the stage `dev`."""
    with deployed(monkeypatch, OUTPUTS) as client:
        yield KeyStore(DynamoDBRecords(client, "control"))


def keys(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--stage", "dev"])


def created(*arguments: str) -> PresentedKey:
    done = keys("create", *arguments)
    assert done.exit_code == 0, done.output
    found = parse(done.stdout.strip())
    assert found is not None
    return found


def test_a_key_is_printed_once(stored: KeyStore) -> None:
    """Alone on stdout; nothing that is stored, listed or shown afterwards holds its secret."""
    given = created("--role", "read", "--feed", "orders")
    found = stored.key("orders", given.id)
    assert found is not None and found.matches(given.secret)
    told = "".join(
        keys(*words, "--feed", "orders").output
        for words in (
            ["list"],
            ["list", "--json"],
            ["show", given.id],
            ["show", given.id, "--json"],
        )
    )
    assert given.id in told and given.secret not in told and found.digest not in told


def test_a_key_has_what_was_asked_for(stored: KeyStore) -> None:
    """A key has roles, a bound, an expiry, a rate, a label, and its creator."""
    words = "--role read --role ingest --type video --parent user/42 --expires 24h --rate 50"
    words += " --streams 9"
    done = keys("create", *words.split(), "--label", "Ann's phone", "--by", "bob", "--json")
    told = json.loads(done.stdout)
    given = parse(told["key"])
    assert given is not None and told["id"] == given.id
    found = stored.key("main", given.id)
    assert found is not None
    assert found.roles == {Role.READ, Role.INGEST}
    assert found.bound == Filter(frozenset({"video"}), frozenset({"user/42"}))
    assert found.expires_ms - found.made_ms == pytest.approx(DAY_MS, abs=5000)
    assert (found.rate, found.label, found.made_by) == (50, "Ann's phone", "bob")
    assert found.streams == 9
    shown = json.loads(keys("show", given.id, "--json").stdout)
    assert shown == {name: value for name, value in told.items() if name != "key"}
    assert to_ms(shown["expires_at"]) == pytest.approx(found.expires_ms, abs=1)


def test_a_key_of_the_host_has_prefixes(stored: KeyStore) -> None:
    """It is listed with them, and found only with --host."""
    given = created("--host", "--role", "admin", "--feeds", "team-a-", "--feeds", "test-")
    found = stored.key(HOST, given.id)
    assert found is not None and found.feeds == ("team-a-", "test-")
    assert "feeds      team-a-*, test-*" in keys("show", given.id, "--host").output.splitlines()
    assert "feeds=team-a-,test-" in keys("list", "--host").output
    assert json.loads(keys("show", given.id, "--host", "--json").output)["feeds"] == [*found.feeds]
    assert keys("show", given.id).exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--feeds team-a-", "add --host"),
        ("--host --feed main", "name either a feed with --feed or the host with --host"),
    ],
)
def test_what_is_only_for_the_host(stored: KeyStore, words: str, said: str) -> None:
    done = keys("create", "--role", "read", *words.split())
    assert done.exit_code == 2 and said in done.output


def test_a_list_is_for_people_and_for_programs(stored: KeyStore) -> None:
    """A line a key; what ended is marked."""
    first = created("--role", "read", "--parent", "user/42")
    second = created("--role", "admin")
    assert keys("revoke", second.id).exit_code == 0
    lines = keys("list").stdout.splitlines()
    assert lines[0].split() == ["id", "state", "roles", "bound", "until", "rate", "by", "label"]
    by_id = {line.split()[0]: line.split() for line in lines[1:]}
    assert by_id[first.id][1:4] == ["holds", "read", "parents=user/42"]
    assert by_id[second.id][1:3] == ["revoked", "admin"]
    told = [json.loads(line) for line in keys("list", "--json").stdout.splitlines()]
    assert {each["id"]: each["state"] for each in told} == {first.id: "holds", second.id: "revoked"}


def test_a_revoked_key_is_in_the_profile(stored: KeyStore) -> None:
    """The profile makes connections with this key close."""
    given = created("--role", "read")
    assert "revoked" in keys("revoke", given.id).stdout
    found = stored.key("main", given.id)
    assert found is not None and found.revoked_ms
    profile = ProfileStore(DynamoDBRecords(boto3.client("dynamodb"), "control")).profile("main")
    assert [each.key for each in profile.ended] == [given.id]


def test_a_key_is_rotated(stored: KeyStore) -> None:
    """The new one is printed, the old one names it and runs out."""
    old = created("--role", "ingest", "--parent", "user/42")
    done = keys("rotate", old.id, "--overlap", "1h", "--by", "bob")
    new = parse(done.stdout.strip())
    assert new is not None
    found, replaced = stored.key("main", new.id), stored.key("main", old.id)
    assert found is not None and replaced is not None
    assert (found.roles, found.bound, found.made_by) == (replaced.roles, replaced.bound, "bob")
    assert replaced.expires_ms - found.made_ms == pytest.approx(3600 * 1000, abs=5000)
    assert replaced.successor == new.id and f"successor  {new.id}" in keys("show", old.id).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("create", "Missing option '--role'"),
        ("create --role owner", "is not one of"),
        ("create --role admin --type video", "admin needs the whole feed"),
        ("create --role consume --parent p", "consume needs the whole feed"),
        ("create --role read --expires soon", "must be a duration such as"),
        ("create --role read --rate -1", "0<=x<=10000"),
        ("show 3k2m9c0q8xw1", "is not the id of a key"),
        ("revoke tdk_3k2m9c0q8xw1_x", "not the whole key"),
        ("create --role read --feed none", "no such feed"),
    ],
)
def test_what_is_wrong_is_said(stored: KeyStore, words: str, said: str) -> None:
    """In a sentence, and nothing is stored."""
    done = keys(*words.split())
    assert done.exit_code != 0 and said in done.output, done.output
    assert list(stored.keys("main")) == []


def test_local_operations_have_no_route() -> None:
    """A key is shown and rotated, and settings, passwords and users are changed on the stores."""
    local = {KeyRouter.show_key, KeyRouter.rotate_key, LocalAdmin.set_password}

    assert all(vars(each)["declared"].is_local for each in local)
    assert LocalAdmin.declared == {} and LocalAdmin.http_routes() == []
    assert {each.function.__name__ for each in KeyRouter.declared.values()} == {
        *("list_keys", "create_key", "revoke_key")
    }
