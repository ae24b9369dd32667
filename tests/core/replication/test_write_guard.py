"""Who may write to a feed: nobody but its relay where it is a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tidings.core.auth.guard import FailedAttemptLimiter
from tidings.core.changeagent.submit import Proposer
from tidings.core.changeagent.users import Gate, UserVerifier
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.core.errors import Chained
from tidings.core.ingest.forwarder import Forwarder
from tidings.core.ingest.ingest import Request
from tidings.core.ingest.outbox import OPERATIONS, OutboxMessage
from tidings.core.ingest.table_capture import Capture, Capturer, Write
from tidings.core.log.reader import Filler
from tidings.core.model.json_body import JSON_TYPE
from tidings.core.replication.source import Source
from tidings.core.replication.write_guard import ALL_LOCAL, WriteGuard
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE, correction

from tests.core.scene import FEED, FEEDS, NOW, PAGE_MS, Scene, line, op
from tests.core.sync.test_apply import corrector
from tests.fakes import MemoryOperatorDocuments, MemoryOutbox

UPSTREAM = "https://b.example/feeds/main"
MASTER = "https://a.example/feeds/main"
COPIES = WriteGuard({FEED: Source(UPSTREAM)})


@pytest.fixture
def copy(scene: Scene) -> Scene:
    """A scene whose feed is chained."""
    scene.appender = replace(scene.appender, check_writable=COPIES.check)
    scene.ingester = replace(scene.ingester, appender=scene.appender)
    return scene


def knows(known: str) -> Callable[[str], str]:
    return lambda _feed: known


def test_the_masters_address_is_told() -> None:
    """The one that the relay has heard, else the one that is read."""
    for known, address in ((None, UPSTREAM), (knows(""), UPSTREAM), (knows(MASTER), MASTER)):
        with pytest.raises(Chained) as refused:
            replace(COPIES, master=known).check(FEED)
        assert refused.value.body()["master"] == address
        assert str(refused.value) == f"feed: is a copy of {address}: post there"


def test_D1_other_feeds_take_what_is_posted(copy: Scene) -> None:
    """One deployment may have both kinds."""
    COPIES.check("other")
    ALL_LOCAL.check(FEED)
    assert copy.post(op(), feed="other").number == 1


def _append(scene: Scene) -> None:
    scene.post(op())


def _append_once(scene: Scene) -> None:
    scene.appender.append_once(FEED, [line()], "key", "fingerprint")


def _ingest(scene: Scene) -> None:
    """Also what could not be posted anywhere: where to post comes first."""
    scene.ingester.accept(Request(FEED, b"no operation", JSON_TYPE))


def _propose(scene: Scene) -> None:
    """Before webhooks are asked about a change that cannot be."""

    def ask(hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        raise AssertionError("nobody is to be asked")

    operator_documents = MemoryOperatorDocuments()
    gate = Gate(
        operator_documents,
        scene.guard,
        UserVerifier(lambda *_: False, b"key"),
        FailedAttemptLimiter(lambda: 0, 50),
    )
    rest = FEEDS, scene.count, scene.tallies
    proposer = Proposer(scene.appender, gate, operator_documents, ask, *rest)
    proposer.accept(Request(FEED, b'{"data":1}', JSON_TYPE))


def _capture(scene: Scene) -> None:
    """What waits in the stream of a table is not given up, so that the mistake can be mended."""
    write = Write("e-1", "insert", {"id": "a"}, {}, {"kind": "video"}, NOW)
    capture = Capture(FEED, "{{kind}}", "{{id}}")
    Capturer(capture, scene.appender, MemoryOutbox(), scene.count).run([write])


def _correct(scene: Scene) -> None:
    wanted = corrections.encode(correction(line("a", "insert"), NOWHERE)).encode()
    replace(corrector(scene), writable=COPIES).apply(FEED, 0, [wanted])


WRITERS = (_append, _append_once, _ingest, _propose, _capture, _correct)


@pytest.mark.parametrize("write", WRITERS, ids=lambda each: each.__name__.strip("_"))
def test_whoever_writes_is_refused(copy: Scene, write: Callable[[Scene], None]) -> None:
    """And nothing is written: no number is taken, which would be a hole for ever."""
    with pytest.raises(Chained):
        write(copy)
    assert copy.log.head(FEED) == 0 and copy.log.read(FEED, 0) == []


def test_a_letter_is_put_aside(copy: Scene) -> None:
    """With the reason, as whatever the feed refuses."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, OutboxMessage("1", OPERATIONS, line()))
    lines = {OPERATIONS: copy.ingester.lines}

    Forwarder(outbox, copy.appender, lines, copy.clock, copy.count).run(FEED)

    assert outbox.aside == {(FEED, "1"): f"feed: is a copy of {UPSTREAM}: post there"}
    assert copy.counted["LettersRefused"] == 1


def test_no_hole_of_a_copy_is_filled(scene: Scene) -> None:
    """It has none, unless somebody meddled; what is then missing comes from the upstream alone."""
    scene.log.take(FEED)
    scene.post(op())
    scene.now_ms += 60_000
    fillers = [Filler(scene.reader, PAGE_MS, chained) for chained in (COPIES.sources, ())]

    assert [each.close_hole(FEED, 0) for each in fillers] == [False, True]
