"""`tidings feed` against a stage with a stack and tables of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.fakes.runtime import EVERY_FEED
from tests.fakes.settings import MemoryOperatorDocuments, MemoryProfiles
from tests.unit.admin.cloudformation import deployed, describing
from tidings.admin import feed_command
from tidings.admin.target import Stored
from tidings.aws.config.stages import CONTROL_OUTPUT, FEEDS_OUTPUT
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.cli.main import main
from tidings.core.auth.guard import Credential, FailedAttemptLimiter, Guard, Role
from tidings.core.auth.passwords import Verifier, hash_password
from tidings.core.errors import WrongPassword
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.server.command import serve
from tidings.server.local import LocalAdmin, settings_json

FIRST, SECOND, THIRD = (
    hash_password(f"password {number}", salt=b"s" * 16, now_ms=number * 1000)
    for number in (1, 2, 3)
)
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


def kept_profile(*stored: str) -> MemoryProfiles:
    profiles = MemoryProfiles()
    assert profiles.save("main", Profile(read_passwords=stored, ingest_passwords=(FIRST,)))
    return profiles


def called(kept: MemoryProfiles, route: Any, **given: object) -> tuple[str, ...]:
    """Call *route* for the role `read`; return the hashes of its passwords."""
    place = Stored(
        "main", LocalAdmin(kept, MemoryOperatorDocuments(), lambda: 9_000), operator="ann"
    )
    place.call(route.declared, {"feed": "main"}, {"role": "read", **given})
    profile = kept.profile("main")
    assert profile.ingest_passwords == (FIRST,)
    return profile.read_passwords


def test_a_new_password_replaces_the_old_one() -> None:
    """The password of the other role stays."""
    (stored,) = called(kept_profile(FIRST), LocalAdmin.set_password, password="a new password")
    assert stored != FIRST


def test_the_old_one_may_be_kept_and_no_older_one() -> None:
    """Two hold at a time, the newest first."""
    given = {"password": "a new password", "keep_old": True}
    new, *old = called(kept_profile(SECOND, FIRST), LocalAdmin.set_password, **given)
    assert old == [SECOND] and new != SECOND


def test_at_the_end_of_a_rotation_the_newest_is_left() -> None:
    """Without a password nothing changes."""
    kept = kept_profile(SECOND, FIRST)
    assert called(kept, LocalAdmin.remove_passwords, only_old=True) == (SECOND,)
    assert called(kept, LocalAdmin.remove_passwords, only_old=True) == (SECOND,)
    assert called(kept, LocalAdmin.remove_passwords) == ()
    assert called(kept, LocalAdmin.remove_passwords, only_old=True) == ()


def test_no_hash_is_shown() -> None:
    """Text and JSON only show how many passwords there are, and since when."""
    profile = Profile("http://api/{{id}}", "oplog", True, (SECOND, FIRST), (), 7)
    data = settings_json("main", profile)
    lines = feed_command.shown_settings(data)

    assert "1 of 2, set at 1970-01-01T00:00:02Z" in lines
    assert "ingest password  none: closed" in lines
    assert data["read_passwords"] == [
        {"set_at": "1970-01-01T00:00:02Z"},
        {"set_at": "1970-01-01T00:00:01Z"},
    ]
    assert "scrypt" not in lines + json.dumps(data)


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
            verifier=Verifier(b"key"),
            open=False,
            failures=FailedAttemptLimiter(lambda: 0, 50),
            feed_names=EVERY_FEED,
        ).check(of, role, Credential(password))
    except WrongPassword:
        return False
    return True


def test_settings_are_set_one_by_one(profiles: ProfileStore) -> None:
    """Other settings stay; the command shows the new ones."""
    assert feed("set", "--object-url", "http://api/{{id}}", "--compat", "oplog").exit_code == 0
    assert feed("set", "--leave", "on").exit_code == 0
    assert profiles.profile("main") == Profile("http://api/{{id}}", "oplog", True, version=2)
    shown = json.loads(feed("show", "--json").stdout)
    assert (shown["object_url"], shown["compat"], shown["leave"]) == (
        "http://api/{{id}}",
        "oplog",
        True,
    )
    assert feed("set", "--compat", "none", "--leave", "off", "--object-url", "").exit_code == 0
    assert profiles.profile("main") == Profile(version=3)


@pytest.mark.parametrize("said", ["a good password", "a good password\n", "a good password\r\n"])
def test_a_password_from_stdin(profiles: ProfileStore, said: str) -> None:
    """Its line ending does not count; it opens its role and is nowhere in the answer."""
    done = feed("password", "read", said=said)
    assert done.exit_code == 0 and "1 of 1, set at" in done.stderr
    assert "a good password" not in done.output
    assert allows(profiles, Role.READ, "a good password")


def test_a_generated_password_is_printed_once(profiles: ProfileStore) -> None:
    """It is the only text on stdout, so that it can be piped."""
    text = feed("password", "ingest", "--generate", "--feed", "orders").stdout.strip()
    assert len(text) == 32
    assert allows(profiles, Role.INGEST, text, "orders")
    assert text not in feed("show", "--feed", "orders").output


def test_a_rotation(profiles: ProfileStore) -> None:
    """Both passwords are valid while clients move, then only the newest, then none."""
    feed("password", "read", said="the old one")
    feed("password", "read", "--keep-old", said="the new one")
    assert allows(profiles, Role.READ, "the old one")
    assert allows(profiles, Role.READ, "the new one")
    feed("password", "read", "--remove-old")
    assert not allows(profiles, Role.READ, "the old one")
    assert allows(profiles, Role.READ, "the new one")
    assert "none: closed" in feed("password", "read", "--remove").stderr
    assert profiles.profile("main").read_passwords == ()


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


@pytest.mark.parametrize(
    ("arguments", "said", "code", "sentence"),
    [
        (["password", "read"], "short", 1, "password: must have 8 to 256 bytes, has 5"),
        (["password", "read", "--remove", "--generate"], "", 2, "give at most one of"),
        (["password", "read", "--remove", "--remove-old"], "", 2, "give at most one of"),
        (["password", "read", "--generate", "--password-file", "-"], "", 2, "give at most one of"),
        (["set"], "", 2, "name what to set"),
        (["set", "--object-url", "/{{ID}}"], "", 1, "only the placeholders"),
        (["show", "--feed", "mian"], "", 1, "feed: no such feed here"),
        (["show", "--feed", "MAIN"], "", 1, "feed: must be 1 to 63 of"),
        (["show", "--endpoint-url", "http://x"], "", 2, "name the feed once"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    profiles: ProfileStore, arguments: list[str], said: str, code: int, sentence: str
) -> None:
    """The command changes nothing."""
    done = feed(*arguments, said=said)
    assert (done.exit_code, sentence in done.stderr) == (code, True), done.output
    assert profiles.profile("main") == Profile()


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


def test_no_twin_there(profiles: ProfileStore) -> None:
    """One sentence, soon."""
    done = CliRunner().invoke(main, ["feed", "show", "--endpoint-url", "http://127.0.0.1:1"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "the store did not answer" in done.stderr
