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


def test_local_operations_have_no_route() -> None:
    """A key is shown and rotated, and settings, passwords and users are changed on the stores."""
    local = {KeyRouter.show_key, KeyRouter.rotate_key, LocalAdmin.set_password}

    assert all(vars(each)["declared"].is_local for each in local)
    assert LocalAdmin.declared == {} and LocalAdmin.http_routes() == []
    assert {each.function.__name__ for each in KeyRouter.declared.values()} == {
        *("list_keys", "create_key", "revoke_key")
    }
