"""The options of a server: wrong values, the files that it finds, and the profile of its feeds."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.certificates import write_authority
from tests.fakes import MemoryProfiles
from tidings.client.cli.main import main
from tidings.core.auth.passwords import Verifier
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.replication.source import FallOff, Role
from tidings.core.settings.profiles import Profile
from tidings.server import feed_options, processes
from tidings.server.command import serve
from tidings.server.feed_options import FeedOptions, apply_change, profile_change
from tidings.server.running import NotReady, Server
from tidings.server.settings import Options, Settings, parse_options
from tidings.server.sqlite.database import MIGRATIONS, CannotOpen, Database

TEXT = "some words\nin two lines\n"
UNREADABLE = "/proc/self/mem"  # not even root can read this file from its start
DEEP = "x" * 110  # with this, the path of a socket has more bytes than the kernel accepts
WRONG: Sequence[tuple[str, str, str]] = (
    # options with a value in which TMP is a folder; the text of the message; and its rule
    ("--port 99999", "--port", "0<=x<=65535"),
    ("--port -1", "--port", "0<=x<=65535"),
    ("--port http", "--port", "not a valid integer"),
    ("--host nowhere.invalid", "--host 'nowhere.invalid'", "an address of this machine"),
    ("--host 203.0.113.9", "--host '203.0.113.9'", "an address of this machine"),
    ("--host 127.0.0.1:80", "--host '127.0.0.1:80'", "an address of this machine"),
    ("--host a..b", "--host 'a..b'", "an address of this machine"),
    ("--host a\nb", r"--host 'a\nb'", "an address of this machine"),
    ("--proxy nix", "--proxy", "'nix' does not appear to be an IPv4 or IPv6 network"),
    ("--allow-origin nix", "--allow-origin='nix'", "SCHEME://HOST"),
    ("--allow-origin https://page.example/", "--allow-origin", "SCHEME://HOST"),
    ("--feeds main,NO", "--feeds='main,NO'", "1 to 63 of a-z"),
    ("--setting TIDINGS_NONE=1", "--setting TIDINGS_NONE", "unknown setting"),
    ("--setting TIDINGS_FEEDS", "--setting TIDINGS_FEEDS", "must be NAME=VALUE"),
    ("--object-url javascript:x", "--object-url", "must begin with http"),
    ("--compat tibco", "--compat", "is not one of"),
    ("--forget-after 4000", "--forget-after", "from 1 to 3650 days"),
    ("--resource vm", "--resource", "must be NAME:SUB,SUB"),
    ("--resource vm:nic --max-age 1", "--max-age", "x>=60"),
    ("--log-format xml", "--log-format", "is not one of"),
    ("--demo-repo TMP/missing", "--demo-repo", "does not exist"),
    ("--demo-repo TMP", "--demo-repo TMP", "must be a git repository"),
    ("--chain-from nix", "--chain-from", "must be https://HOST/feeds/NAME"),
    ("--chain main", "--chain", "must be FEED=URL"),
    ("--chain a=nix", "--chain", "must be https://HOST/feeds/NAME"),
    ("--source types=video", "--source", "--chain-from or --chain is needed"),
    ("--chain-from https://a.example --source type", "--source type", "must be NAME=VALUE"),
    ("--chain-from https://a.example --source role=x", "--source", "role"),
    ("--coordinator http://a.example", "--coordinator", "must be file:///PATH"),
    ("--coordinator file://TMP/text", "TMP/text", "file is not a database"),
    ("--coordinator file://TMP/none/x", "TMP/none/x", "unable to open database file"),
    # passwords
    ("--read-password-file TMP/missing", "--read-password-file", "does not exist"),
    ("--read-password-file TMP", "--read-password-file", "is a directory"),
    (f"--read-password-file {UNREADABLE}", "--read-password-file", "cannot be read"),
    ("--read-password-file TMP/binary", "--read-password-file", "the password must be UTF-8"),
    ("--ingest-password-file TMP/empty", "--ingest-password-file", "must have 8 to 256 bytes"),
    ("--ingest-password-file TMP/text", "--ingest-password-file", "control characters"),
    # certificates
    ("--tls-cert TMP/cert", "--tls-key", "must be given together"),
    ("--tls-cert TMP/missing --tls-key TMP/key", "--tls-cert", "does not exist"),
    ("--tls-cert TMP/text --tls-key TMP/key", "--tls-cert TMP/text", "a chain of certificates"),
    ("--tls-cert TMP/empty --tls-key TMP/key", "--tls-cert TMP/empty", "a chain of certificates"),
    ("--tls-cert TMP/cut --tls-key TMP/key", "--tls-cert TMP/cut", "a chain of certificates"),
    (f"--tls-cert {UNREADABLE} --tls-key TMP/key", "--tls-cert", "Input/output error"),
    ("--tls-cert TMP/cert --tls-key TMP/text", "--tls-key TMP/text", "the private key of"),
    ("--tls-cert TMP/cert --tls-key TMP/other", "--tls-key TMP/other", "KEY_VALUES_MISMATCH"),
    ("--tls-cert TMP/cert --tls-key TMP/locked", "--tls-key TMP/locked", "without a passphrase"),
    (f"--tls-cert TMP/cert --tls-key {UNREADABLE}", "--tls-key", "Input/output error"),
    # places
    ("--unix-socket TMP/none/x", "--unix-socket", "no such file or directory"),
    ("--unix-socket TMP/text", "--unix-socket", "address already in use"),
    (f"--unix-socket TMP/{DEEP}", "--unix-socket", "at most 107 bytes"),
    ("--data TMP/text", "--data", "is a file"),
    ("--data TMP/text/x", "--data TMP/text/x", "Not a directory"),
    ("--data /dev/null", "--data /dev/null", "File exists"),
    ("--data /proc/x", "--data /proc/x", "No such file or directory"),
    ("--setting TIDINGS_ARCHIVE=file://TMP/text", "TIDINGS_ARCHIVE", "TMP/text cannot be written"),
    ("--setting TIDINGS_ARCHIVE=file://TMP/text/x", "TIDINGS_ARCHIVE", "cannot be written"),
    ("--setting TIDINGS_ARCHIVE=file:///proc/x", "TIDINGS_ARCHIVE", "cannot be written"),
    ("--setting TIDINGS_ARCHIVE=s3://bucket", "TIDINGS_ARCHIVE", "must be file:///PATH"),
    # other settings
    ("--setting TIDINGS_COORDINATOR=x", "TIDINGS_COORDINATOR='x'", "must be file:///PATH"),
    ("--setting TIDINGS_FEEDS=NO", "TIDINGS_FEEDS='NO'", "1 to 63 of a-z"),
    ("--setting TIDINGS_RETENTION_HOURS=1e9", "TIDINGS_RETENTION_HOURS", "from 1 to 1000000000"),
    ("--setting TIDINGS_CONSUMER_HOURS=0", "TIDINGS_CONSUMER_HOURS", "from 1 to 1000000000"),
    ("--setting TIDINGS_RECORDS_MIN=-1", "TIDINGS_RECORDS_MIN='-1'", "from 0 to 1000000000"),
    ("--setting TIDINGS_LATE_SECONDS=x", "TIDINGS_LATE_SECONDS='x'", "from 0 to 1000000000"),
    ("--setting TIDINGS_OPEN=yes", "TIDINGS_OPEN='yes'", "must be true or false"),
    ("--setting TIDINGS_HOOKS_PRIVATE=1", "TIDINGS_HOOKS_PRIVATE='1'", "must be true or false"),
    ("--setting TIDINGS_CORS_ORIGINS=nix", "TIDINGS_CORS_ORIGINS='nix'", "SCHEME://HOST"),
    ("--setting TIDINGS_OIDC={", "TIDINGS_OIDC", "must be JSON"),
    ("--setting TIDINGS_TRACES=some", "TIDINGS_TRACES='some'", "must be off, asked or all"),
    ("--setting TIDINGS_URL_PREFIX=a?b", "TIDINGS_URL_PREFIX='a?b'", "must be letters"),
    ("--setting TIDINGS_SOURCES=[]", "TIDINGS_SOURCES", "must be"),
)
EXPORTING = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
# Variables of the environment that a server reads in addition to its settings.
VARIABLES = (
    ("TIDINGS_DEBUG_LOOP", "x", "must be a number of milliseconds"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "x", "from 1 to 86400000"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "9" * 20, "from 1 to 86400000"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    pem = write_authority(folder).read_bytes()
    plain, mark, cert = pem.partition(b"-----BEGIN CERTIFICATE-----\n")
    key, other = (
        serialization.load_pem_private_key(plain, None),
        ec.generate_private_key(ec.SECP256R1()),
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"secret")
    files = {
        "text": TEXT.encode(),
        "binary": b"\xff\xfe\x00",
        "empty": b"",
        "cert": mark + cert,
        "cut": mark + cert[:100] + b"\n-----END CERTIFICATE-----\n",
        "key": plain,
        "other": other.private_bytes(*form, serialization.NoEncryption()),
        "locked": key.private_bytes(*form, locked),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


# One process imports everything, and starts a server in a fork of it for each wrong value.
FORKS = """
import json, os, signal, sys, tempfile
import uvloop
from tidings.server import serving, sockets, telemetry
from tidings.server.command import serve
from tidings.server.output import drain

answers = []
for arguments, environment in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            signal.alarm(60)  # a server that starts after all ends then
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.update(environment)
            try:
                serve(arguments, prog_name="tidings serve")
            except SystemExit as end:
                drain()
                os._exit(end.code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        answers.append((code, output.read()))
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(folder: Path) -> Mapping[tuple[str, str], tuple[int, str]]:
    """Return the exit code and the output of a server for each wrong option or variable."""
    cases = [(text, "") for text, *_ in WRONG] + [(name, text) for name, text, _ in VARIABLES]
    wanted = []
    for number, (first, second) in enumerate(cases):
        given = first.replace("TMP", str(folder)).split(" ") if not second else []
        data = [] if "--data" in given else ["--data", str(folder / f"data{number}")]
        place = [] if "--port" in given else ["--port", "0"]
        wanted.append(([*place, *data, *given], {first: second, **EXPORTING} if second else {}))
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(cases, map(tuple, json.loads(done.stdout)), strict=True))


def check_sentence(answer: tuple[int, str]) -> str:
    """Return the last line of *answer*, the output of a server that did not start."""
    code, output = answer
    lines = output.splitlines()
    # A usage error has the usage, a hint and an empty line before its sentence.
    assert (code, len(lines)) in ((1, 1), (2, 4)), output
    return lines[-1]


@pytest.mark.parametrize(("options", "named", "rule"), WRONG)
def test_a_wrong_option_is_named_in_one_sentence(
    answers: Mapping[tuple[str, str], tuple[int, str]],
    folder: Path,
    options: str,
    named: str,
    rule: str,
) -> None:
    """With its value and its rule."""
    sentence = check_sentence(answers[options, ""])

    assert named.replace("TMP", str(folder)) in sentence
    assert rule.replace("TMP", str(folder)) in sentence
    assert (folder / "text").read_text() == TEXT


@pytest.mark.parametrize(("name", "value", "rule"), VARIABLES)
def test_a_wrong_variable_is_named_in_one_sentence(
    answers: Mapping[tuple[str, str], tuple[int, str]], name: str, value: str, rule: str
) -> None:
    assert rule in check_sentence(answers[name, value])


def test_every_option_and_setting_is_in_the_table() -> None:
    """Except for options without a value, and those that accept any text."""
    options = {max(each.opts, key=len) for each in serve.params if not getattr(each, "is_flag", 0)}
    given = " ".join(text for text, *_ in WRONG).replace("=", " ").split()

    assert options - {*given} == {"--allow-host"}
    assert {each.variable for each in Settings.declared()} <= {*given}


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE x (a)",
        "CREATE TABLE x (a); PRAGMA journal_mode = WAL",
        f"CREATE TABLE pages (x); PRAGMA user_version = {len(MIGRATIONS)}",
        "CREATE VIEW v AS SELECT 1",
        "PRAGMA user_version = 999",
        "PRAGMA user_version = -1",
        "PRAGMA user_version = 3; CREATE TABLE moz_places (url)",
    ],
)
def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path, statements: str) -> None:
    """The file is refused before anything is written to it."""
    file = tmp_path / "feed.db"
    with closing(sqlite3.connect(file)) as other:
        other.executescript(statements)
    before = file.read_bytes()
    with pytest.raises(CannotOpen, match=r"feed\.db: is a database of another program"):
        Database(file)

    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (before, [file])


@pytest.mark.parametrize("name", ["feed.db", "feed.db.heads", "erasures", "operator.sock"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    """Or a file in place of the folder `erasures`; no traceback."""
    with Server(data=tmp_path / "data"):
        pass
    (tmp_path / "data" / name).unlink(missing_ok=True)
    place = tmp_path / "data" / name
    place.touch() if name == "erasures" else place.mkdir()
    with pytest.raises(NotReady, match=rf"^tidings serve: .*data/{name}") as refused:
        Server(data=tmp_path / "data").start()

    assert len(str(refused.value).splitlines()) == 1


def test_a_deep_data_folder_is_served_and_operated(tmp_path: Path) -> None:
    """The socket of operators is reached although its path is too long for the kernel."""
    deep = tmp_path / DEEP / DEEP
    with Server(data=deep) as server:
        operated = CliRunner().invoke(main, ["feed", "show", *server.locator])
        backup = CliRunner().invoke(main, ["backup", *server.locator, str(tmp_path / "copy.db")])
        assert httpx.get(f"{server.url}health").status_code == 200
        assert server.stop() == 0

    assert (operated.exit_code, backup.exit_code) == (0, 0), operated.output + backup.output


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
