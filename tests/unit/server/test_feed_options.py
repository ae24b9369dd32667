"""The options of a server: the files that it finds, and the profile of its feeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MemoryProfiles
from tidings.core.auth.passwords import Verifier
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.replication.source import FallOff, Role
from tidings.core.settings.profiles import Profile
from tidings.server import feed_options, processes
from tidings.server.feed_options import FeedOptions, apply_change, profile_change
from tidings.server.processes import Problem
from tidings.server.settings import Options, parse_options

ROOT = Path(__file__).parents[3]


def test_a_checkout_shows_its_own_page() -> None:
    """This holds for an editable install too, which developers use."""
    assert processes.find_installed().console == ROOT / "console"


def test_a_wheel_shows_what_it_carries(tmp_path: Path) -> None:
    """This holds even inside a checkout, which may have another version; no history is shown."""
    (tmp_path / "console").mkdir()
    (tmp_path / "pyproject.toml").touch()
    here = tmp_path / "site-packages" / "tidings" / "server"
    (here / processes.PACKED).mkdir(parents=True)

    assert processes.find_installed(here) == processes.Installed(here / "packed" / "console", None)


def test_a_checkout_without_history_shows_none(tmp_path: Path) -> None:
    """An archive of a release has no repository."""
    (tmp_path / "console").mkdir()
    (tmp_path / "pyproject.toml").touch()

    assert processes.find_installed(tmp_path / "server").history is None


def test_neither_is_told_in_one_sentence(tmp_path: Path) -> None:
    """The sentence says what to do about it."""
    with pytest.raises(processes.NoPage, match="install Tidings again"):
        processes.find_installed(tmp_path)


@pytest.fixture
def profiles() -> MemoryProfiles:
    return MemoryProfiles()


def start(profiles: MemoryProfiles, options: FeedOptions, *feeds: str) -> None:
    change = profile_change(options)
    if change is not None:
        apply_change(profiles, feeds or ("main",), change)


def test_nothing_named_changes_nothing() -> None:
    """A feed that was there keeps what was set before."""
    assert profile_change(FeedOptions()) is None


def test_what_is_named_is_set_for_every_feed(profiles: MemoryProfiles) -> None:
    """Other fields of the profile stay."""
    start(
        profiles,
        FeedOptions({"object_url": "http://api/{{id}}", "compat": "oplog"}),
        "main",
        "other",
    )
    start(profiles, FeedOptions({"leave": True}), "main")
    start(profiles, FeedOptions({"compat": ""}), "main")

    assert profiles.profile("main") == Profile("http://api/{{id}}", leave=True, version=3)
    assert profiles.profile("other") == Profile("http://api/{{id}}", "oplog", version=1)


def test_passwords_come_from_files(profiles: MemoryProfiles, tmp_path: Path) -> None:
    """One line each, and only hashes are kept."""
    (tmp_path / "read").write_text("the read one\n")
    (tmp_path / "ingest").write_text("the ingest one")
    start(
        profiles,
        FeedOptions(read_password_file=tmp_path / "read", ingest_password_file=tmp_path / "ingest"),
    )

    profile = profiles.profile("main")
    assert Verifier(b"key").matches("the read one", profile.read_passwords)
    assert Verifier(b"key").matches("the ingest one", profile.ingest_passwords)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"short", "must have 8 to 256 bytes, has 5"),
        (b"one password\nanother one\n", "must not contain control characters"),
        (b"\xff\xfe not a text", "the password must be UTF-8"),
    ],
)
def test_a_file_that_holds_no_password(tmp_path: Path, content: bytes, sentence: str) -> None:
    """The error names the file, and does not show its content."""
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(Problem) as refused:
        profile_change(FeedOptions(read_password_file=file))

    assert sentence in str(refused.value) and str(file) in str(refused.value)
    assert "another one" not in str(refused.value)


def test_a_template_that_breaks_its_rule() -> None:
    """The option is named."""
    rule = r"^--object-url: may have only the placeholders \{\{type\}\} and \{\{id\}\}"
    with pytest.raises(Problem, match=rule):
        profile_change(FeedOptions({"object_url": "/{{ID}}"}))


URL = "http://127.0.0.1:8042"


def test_one_option_chains_a_feed() -> None:
    """The feed has the name in the address; without one it is the default feed."""
    named = feed_options.chained_feeds(Options(chain_from=URL))
    assert named == {DEFAULT_FEED: f"{URL}/feeds/main"}
    orders = Options(chain_from=f"{URL}/feeds/orders/")
    assert feed_options.chained_feeds(orders) == {"orders": f"{URL}/feeds/orders"}
    assert parse_options(orders).feeds == {"main", "orders"}
    assert set(parse_options(orders).sources) == {"orders"}


def test_D1_local_feeds_stay_beside_chained_ones() -> None:
    """Each has its own name; options of the source apply to all chained ones."""
    options = Options(
        feeds="main,mine",
        chains=(f"theirs={URL}", f"more={URL}/feeds/x"),
        source=("types=a,b", "fall_off=wait", "restart_offset=3"),
    )
    found = parse_options(options)
    assert found.feeds == {"main", "mine", "theirs", "more"}
    assert {feed: source.url for feed, source in found.sources.items()} == {
        "theirs": f"{URL}/feeds/main",
        "more": f"{URL}/feeds/x",
    }
    source = found.sources["more"]
    assert source.selection.filter.types == frozenset({"a", "b"})
    assert (source.fall_off, source.restart_offset) == (FallOff.WAIT, 3)


def test_an_elected_host_is_at_the_address_where_it_listens() -> None:
    """The common case therefore needs only the role and the coordinator."""
    options = Options(
        port=8052, chain_from=URL, source=("role=elected",), coordinator="file:///leases.db"
    )
    (source,) = parse_options(options).sources.values()
    assert (source.role, source.address) == (Role.ELECTED, "http://127.0.0.1:8052/feeds/main")
