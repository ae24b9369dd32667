"""Options and markers of the whole test suite; pytest reads options only here, at its root."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore import session as aws_session
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default as http_transport
from hypothesis import HealthCheck, settings

from infra import cdk_cli
from tests import descriptions, lanes, warm
from tests.hosts import NAMES
from tests.scheduling import InGroups, in_order
from tests.twin.dynamodb_local import CACHE
from tests.unit.client import chromium
from tests.unit.pipelines import installed
from tidings.server import loop_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
# Contexts and addresses of the developer must not reach commands of tests.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "tidings-tests-config")
for _name in ("TIDINGS_URL", "TIDINGS_CONTEXT", "NO_COLOR"):
    os.environ.pop(_name, None)
# A shell ignores Ctrl-C in the programs that it starts in the background, and so would theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Each server that a test starts refuses to wait for a lock in its event loop.
os.environ.setdefault(loop_guard.VARIABLE, "0")


# A busy machine answers later than the 5 s that httpx waits by default.
REQUEST_S = 60.0
for _phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _phase, REQUEST_S)
# A client reads all certificates of the system, 50 ms of CPU: here once a process.
vars(http_transport)["create_ssl_context"] = cache(vars(http_transport)["create_ssl_context"])
# A session of AWS searches the folders of all services: here once a process, too.
vars(aws_session)["create_loader"] = cache(vars(aws_session)["create_loader"])


@dataclass(frozen=True)
class Need:
    """What tests with a marker need beyond Python, and how to know that it is there."""

    marker: str
    sentence: str
    there: Callable[[], object]


@cache
def _java() -> bool:
    """Return True if a new enough Java is installed."""
    if shutil.which("java") is None:
        return False
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = answer.stderr.partition('"')[2].partition(".")[0]
    return version.isdigit() and int(version) >= JAVA_MIN


def _engine() -> bool:
    """DynamoDB Local itself, or Maven to fetch it."""
    return _java() and (CACHE.is_dir() or shutil.which("mvn") is not None)


def _on_path(program: str) -> bool:
    return shutil.which(program) is not None


def _node() -> bool:
    try:
        cdk_cli.require_node()
    except cdk_cli.NodeMissing:
        return False
    return True


NEEDS: Sequence[Need] = (
    Need("java", f"needs Java {JAVA_MIN} or newer and Maven, for DynamoDB Local", _engine),
    Need("spark", f"needs Java {JAVA_MIN} or newer, for Spark", _java),
    Need("node", "needs Node.js 20 or newer, for the CDK", _node),
    Need("browser", f"needs a browser at {chromium.PATH}", chromium.PATH.exists),
    *(
        Need(program, f"needs {program} on the PATH", partial(_on_path, program))
        for program in lanes.PROGRAMS
    ),
    *(Need(server, *installed.SERVERS[server]) for server in lanes.SERVERS),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=lanes.LANES, help="the tests of one lane (tests/lanes.py)")
    aws = parser.getgroup("aws", "tests of a deployed stage (tests/aws)")
    aws.addoption("--stage", help="the name of the stage; without it these tests are skipped")
    aws.addoption("--load-seconds", type=float, default=600, help="of load (default: 600)")
    aws.addoption("--load-rate", type=float, default=20, help="operations a second (default: 20)")
    aws.addoption("--subnet", action="append", metavar="ID", help="where a Spark job runs")
    aws.addoption("--security-group", action="append", metavar="ID", help="of a Spark job there")
    group = parser.getgroup("conformance", "black-box conformance suite (tests/conformance)")
    group.addoption("--on", default="server", choices=NAMES, help="the host of the suites")
    group.addoption("--base-url", help="where the feed is, http://...; default: a twin of its own")
    group.addoption("--ws-url", help="its WebSocket, ws://...; default: /ws on the base URL")
    group.addoption("--stream-url", help="where GET streams are, if not on the base URL")
    group.addoption("--feed", default="", help="the feed to use; default: the suite creates some")
    group.addoption(
        "--skip-rules",
        default="",
        help='rules of docs/PROTOCOL.md the target cannot keep: "7.*=no streaming,8.6=no back-off"',
    )


# Collecting tests only adds objects, all of which stay: the garbage collector would look at them
# again and again, a fifth of the time, and later in each full collection of a test.
gc.disable()
# A Java of the tests lives for a minute or two: what its second compiler would save later costs
# twice as much now (DynamoDB Local, from its start to 600 requests: 12 s of CPU against 6).
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Random examples are the same in every run, and no machine is too slow for them.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    descriptions.keep()
    warm.install()
    for need in NEEDS:
        config.addinivalue_line("markers", f"{need.marker}: {need.sentence}")
    lane = config.getoption("lane")
    if lane == lanes.SPARK:  # the files with the fewest tests take longest, so they are not last
        config.option.loadscopereorder = False
    if lane:
        in_ci = bool(os.environ.get("CI"))
        lacking = lanes.missing(lane, lambda marker: bool(_need(marker).there()), in_ci=in_ci)
        if lacking:
            needs = "; ".join(_need(marker).sentence for marker in lacking)
            raise pytest.UsageError(f"{lanes.LANES[lane].command}: {needs}. Nothing was run.")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one worker collect before the others, which would compile the same files next to it."""
    with Path(__file__).open() as lock:
        if hasattr(session.config, "workerinput"):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def _need(marker: str) -> Need:
    return next(need for need in NEEDS if need.marker == marker)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests that were skipped by reason, and the lanes that were left out."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"left out: {count} tests: {reason}")
    chosen = terminalreporter.config.getoption("lane")
    if not chosen:
        return
    if chosen == lanes.FAST and os.environ.get(lanes.RUNTIME_APART):
        folders = ", ".join(lanes.RUNTIME)
        terminalreporter.write_line(f"left out: make test-runtime, most tests of {folders}")
    for name, lane in lanes.LANES.items():
        if name != chosen:
            terminalreporter.write_line(f"left out: {lane.command}, {lane.runs}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this process, whatever the folders of its tests."""
    from tests import spark_session  # loads PySpark

    with spark_session.session(tmp_path_factory.mktemp("spark")) as started:
        yield started


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that uses the session, or starts servers: it needs them."""
    fixtures = {*getattr(item, "fixturenames", ())}
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    for named in (each for each in parameters if isinstance(each, str)):
        found = item.session._fixturemanager.getfixturedefs(named, item) or ()
        fixtures |= {named, *(name for each in found for name in each.argnames)}
    if "spark" in fixtures:
        item.add_marker("spark")
    for server in lanes.servers_of(fixtures):
        item.add_marker(server)


def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> None:
    """Refuse to start a server in another lane, which does not require it."""
    name, lane = fixturedef.argname, request.config.getoption("lane")
    if lane not in (None, lanes.DATA) and lanes.servers_of([name]):
        pytest.fail(f"the test gets {name} by its name: use `needing` of tests/unit/pipelines")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name no test after compressed bytes: they contain the time, so workers would not agree."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> InGroups | None:
    """`--dist loadfile` keeps more than a file together where more than a file shares a thing."""
    return InGroups(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of templates load the CDK, and so Node.js, when they are imported."""
    lane = config.getoption("lane")
    return lanes.is_outside(collection_path.as_posix(), lane) if lane else None


def _select(config: pytest.Config, items: list[pytest.Item], chosen: str) -> None:
    """Keep the items of the lane *chosen*; refuse those that no lane would run."""
    lane_of = {item.nodeid: lanes.lane_of(item.nodeid, item.keywords) for item in items}
    for item in items:
        if lanes.is_lost(item.path.as_posix(), lane_of[item.nodeid]):
            reason = f"the lane {lane_of[item.nodeid]} does not collect it (lanes._WORDS)"
            raise pytest.UsageError(f"{item.nodeid}: {reason}")
    kept = {nodeid for nodeid, lane in lane_of.items() if lane == chosen}
    if chosen == lanes.FAST and os.environ.get(lanes.RUNTIME_APART):
        kept = lanes.sample(item.nodeid for item in items if item.nodeid in kept)
    config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in kept])
    items[:] = [each for each in items if each.nodeid in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A lane leaves out the tests of the others. A machine without a tool skips what needs it, and
    says so in one sentence each; what takes long comes first.
    """
    if chosen := config.getoption("lane"):
        _select(config, items, chosen)
    items[:] = in_order(items)
    for need in NEEDS:
        marked = [item for item in items if need.marker in item.keywords]
        if marked and not need.there():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=need.sentence))
