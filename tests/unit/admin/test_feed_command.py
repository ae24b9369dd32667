"""`tidings feed` and `tidings keys` against a stage with a stack and tables of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner, Result

from tests.fakes.runtime import EVERY_FEED
from tests.unit.admin.cloudformation import deployed, describing
from tidings.admin import feed_command
from tidings.aws.config.stages import CONTROL_OUTPUT, FEEDS_OUTPUT
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.cli.main import main
from tidings.core.auth.guard import Credential, FailedAttemptLimiter, Guard, PasswordCheck, Role
from tidings.core.auth.keys import KeyStore, PresentedKey, parse
from tidings.core.auth.passwords import Verifier
from tidings.core.errors import WrongPassword
from tidings.core.model.filters import Filter
from tidings.core.model.timestamps import to_ms
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.http.endpoints.keys import KeyRouter
from tidings.server.command import serve
from tidings.server.local import LocalAdmin, settings_json

# Fields that no option sets: hashes, endings, lost ranges, the version.
APART = {"read_passwords", "ingest_passwords", "ended", "lost", "version", "closed"}
WHILE_IT_RUNS = {"push_lanes"}  # a server always has one, a twin gets it while it runs


def test_every_setting_can_be_set_and_is_shown() -> None:
    """A setting can be set on a stage and when a host starts, and the JSON output has it."""
    settings = {each.name.removesuffix("_s") for each in fields(Profile)} - APART

    assert settings <= {
        each.name.removesuffix("_") for each in feed_command.feed.commands["set"].params
    }
    assert settings - WHILE_IT_RUNS <= {each.name for each in serve.params}
    assert settings <= {*settings_json("main", Profile())}


OUTPUTS = {CONTROL_OUTPUT: "control", FEEDS_OUTPUT: "main,orders"}


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfileStore]:
    """Yield the profiles of the stage `dev`."""
    with deployed(monkeypatch, OUTPUTS) as client:
        yield ProfileStore(DynamoDBRecords(client, "control"))


def feed(*arguments: str, said: str = "", stage: str = "dev") -> Result:
    return CliRunner().invoke(main, ["feed", *arguments, "--stage", stage], input=said)


def allows(profiles: ProfileStore, role: Role, password: str, of: str = "main") -> bool:
    try:
        Guard(
            profiles=profiles,
            passwords=PasswordCheck(Verifier(b"key"), FailedAttemptLimiter(lambda: 0, 50)),
            open=False,
            feed_names=EVERY_FEED,
        ).check(of, role, Credential(password))
    except WrongPassword:
        return False
    return True


@pytest.mark.parametrize("said", ["a good password", "a good password\n", "a good password\r\n"])
def test_a_password_from_stdin(profiles: ProfileStore, said: str) -> None:
    """Its line ending does not count; it opens its role and is nowhere in the answer."""
    done = feed("password", "read", said=said)
    assert done.exit_code == 0 and "1 of 1, set at" in done.stderr
    assert "a good password" not in done.output
    assert allows(profiles, Role.READ, "a good password")


def test_a_rotation(profiles: ProfileStore) -> None:
    """Both passwords are valid while clients move, then only the newest, then none.

    The password of the other role stays.
    """
    feed("password", "ingest", said="another one")
    feed("password", "read", said="the first one")
    feed("password", "read", "--keep-old", said="the old one")
    feed("password", "read", "--keep-old", said="the new one")
    assert not allows(profiles, Role.READ, "the first one")
    assert allows(profiles, Role.READ, "the old one")
    assert allows(profiles, Role.READ, "the new one")
    for _ in range(2):
        feed("password", "read", "--remove-old")
    assert not allows(profiles, Role.READ, "the old one")
    assert allows(profiles, Role.READ, "the new one")
    assert "none: closed" in feed("password", "read", "--remove").stderr
    assert profiles.profile("main").read_passwords == ()
    assert allows(profiles, Role.INGEST, "another one")


def test_another_operators_change_is_kept(
    profiles: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made between our reading and our saving: ours is made again on top of it."""
    original, others = ProfileStore.profile, [True]

    def interrupted(self: ProfileStore, name: str) -> Profile:
        found = original(self, name)
        if others:
            others.pop()
            profiles.save(name, replace(found, compat="oplog"))
        return found

    monkeypatch.setattr(ProfileStore, "profile", interrupted)
    assert feed("set", "--leave", "on").exit_code == 0
    assert profiles.profile("main") == Profile(compat="oplog", leave=True, version=2)


def test_the_stage_and_the_feed_of_a_context(
    profiles: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, or current; a context with an address has no stores, and an option replaces it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    runner = CliRunner()
    for arguments in (["there", "--url", "https://feeds.test"], ["mine", "--stage", "dev"]):
        runner.invoke(main, ["context", "set", *arguments], catch_exceptions=False)
    settings = ["feed", "set", "--object-url", "https://x.test/{{id}}"]

    named = runner.invoke(main, [*settings, "--context", "mine"])
    other = runner.invoke(main, ["users", "list"])
    runner.invoke(main, ["context", "use", "mine"])
    current = runner.invoke(main, ["feed", "show"])
    both = runner.invoke(main, ["feed", "show", "--context", "mine", "--stage", "dev"])

    assert named.exit_code == 0, named.stderr
    assert profiles.profile("main").object_url == "https://x.test/{{id}}"
    assert "https://x.test/{{id}}" in current.output
    assert (other.exit_code, both.exit_code) == (2, 2)
    assert "the context there has no stage" in other.stderr


def test_a_stage_that_is_not_there(profiles: ProfileStore) -> None:
    """The error has its name and CloudFormation's message."""
    done = feed("show", stage="prod")
    assert done.exit_code == 1
    assert "the stack tidings-prod: Stack with id tidings-prod does not exist" in done.stderr


def test_a_stage_deployed_before_there_were_profiles(
    profiles: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to do."""
    with describing("tidings-dev", {}) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", url)
        done = feed("show")
    assert "the stack tidings-dev has no output ControlTable; deploy it again" in done.stderr


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
