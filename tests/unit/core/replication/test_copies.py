"""Test that writers are kept off copies, and that a promoted copy takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.fakes import MemoryLog, MemoryOperatorDocuments, MemoryOutbox, MemoryRelays
from tests.unit.core.following import caught_up, names
from tests.unit.core.replication.relay_scene import Chain, chained
from tests.unit.core.scene import FEED, NOW, PAGE_MS, Scene, line, op
from tests.unit.core.sync.test_apply import corrector
from tidings.core.auth.guard import FailedAttemptLimiter
from tidings.core.changeagent.submit import Proposer
from tidings.core.changeagent.users import UserAuthenticator, UserVerifier
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.core.errors import (
    BrokenRelay,
    Chained,
    IncompleteCopy,
    InvalidRelay,
    NotChained,
    NothingDone,
    Yielded,
)
from tidings.core.ingest.ingest import PostRequest
from tidings.core.ingest.outbox import OPERATIONS, Forwarder, OutboxMessage
from tidings.core.ingest.table_capture import Capture, Capturer, Write
from tidings.core.limits import JUMPS_MIN, PAGE_NUMBER_MAX
from tidings.core.log.reader import Filler
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.json_body import JSON_TYPE
from tidings.core.replication.copies import ALL_LOCAL, COPIES_TTL_MS, Copies, WriteGuard
from tidings.core.replication.relay import Copy, RelayStore, Wanted
from tidings.core.replication.source import ALL, Mod, Selection, Source
from tidings.core.sync import corrections
from tidings.core.sync.corrections import NOWHERE, correction

UPSTREAM = "https://b.example/feeds/main"
MASTER = "https://a.example/feeds/main"
COPIES = WriteGuard({FEED: Source(UPSTREAM)})


@pytest.fixture
def copy(scene: Scene) -> Scene:
    """Create a scene with a chained feed."""
    scene.appender = replace(scene.appender, check_writable=COPIES.check)
    scene.ingester = replace(scene.ingester, appender=scene.appender)
    return scene


def knows(known: str, wanted: Wanted = Wanted.RUN) -> Callable[[], MemoryRelays]:
    """Return the opener of a store whose relay has learned the address *known*."""
    relays = MemoryRelays(MemoryLog())
    relay = relays.relay(FEED)
    assert relays.write(relay, replace(relay, master=known, wanted=wanted))
    return lambda: relays


def test_the_masters_address_is_told() -> None:
    """It is the one that the relay has learned, else the configured upstream."""
    for known, address in ((None, UPSTREAM), (knows(""), UPSTREAM), (knows(MASTER), MASTER)):
        with pytest.raises(Chained) as refused:
            replace(COPIES, store=known).check(FEED)
        assert refused.value.body()["master"] == address
        assert str(refused.value) == f"feed: is a copy of {address}: post there"
    replace(COPIES, store=knows(MASTER, Wanted.PROMOTED)).check(FEED)


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
    """Post an invalid body: the refusal as a copy comes first."""
    scene.ingester.accept(PostRequest(FEED, b"no operation", JSON_TYPE))


def _propose(scene: Scene) -> None:
    """Propose a change: the refusal comes before webhooks are called."""

    def ask(hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        raise AssertionError("no webhook may be called")

    operator_documents = MemoryOperatorDocuments()
    gate = UserAuthenticator(
        operator_documents,
        scene.guard,
        UserVerifier(lambda *_: False, b"key"),
        FailedAttemptLimiter(lambda: 0, 50),
    )
    proposer = Proposer(
        appender=scene.appender,
        gate=gate,
        operator_documents=operator_documents,
        ask=ask,
        counters=scene.counters,
        tracer=scene.host.tracer,
    )
    proposer.accept(PostRequest(FEED, b'{"data":1}', JSON_TYPE))


def _capture(scene: Scene) -> None:
    """Writes in a table's stream are kept, so that the mistake can be fixed."""
    write = Write("e-1", "insert", {"id": "a"}, {}, {"kind": "video"}, NOW)
    capture = Capture(FEED, "{{kind}}", "{{id}}")
    Capturer(capture, scene.appender, MemoryOutbox(), scene.count).run([write])


def _correct(scene: Scene) -> None:
    wanted = corrections.encode(correction(line("a", "insert"), NOWHERE)).encode()
    replace(corrector(scene), writable=COPIES).apply(FEED, 0, [wanted])


WRITERS = (_append, _append_once, _ingest, _propose, _capture, _correct)


@pytest.mark.parametrize("write", WRITERS, ids=lambda each: each.__name__.strip("_"))
def test_whoever_writes_is_refused(copy: Scene, write: Callable[[Scene], None]) -> None:
    """Nothing is written: a number that is taken would remain a hole forever."""
    with pytest.raises(Chained):
        write(copy)
    assert copy.log.head(FEED) == 0 and copy.log.read(FEED, 0) == []


def test_a_message_is_put_aside(copy: Scene) -> None:
    """It is stored with the reason, like every message that the feed refuses."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, OutboxMessage("1", OPERATIONS, line()))
    lines = {OPERATIONS: copy.ingester.lines}

    Forwarder(outbox=outbox, appender=copy.appender, lines=lines, runtime=copy.runtime).run(FEED)

    assert outbox.aside == {(FEED, "1"): f"feed: is a copy of {UPSTREAM}: post there"}
    assert copy.counted["LettersRefused"] == 1


def test_no_hole_of_a_copy_is_filled(scene: Scene) -> None:
    """A copy has no holes unless pages were removed by hand; only the upstream can supply those."""
    scene.log.take(FEED)
    scene.post(op())
    scene.now_ms += 60_000
    fillers = [Filler(scene.reader, PAGE_MS, chained) for chained in (COPIES.sources, ())]

    assert [each.close_hole(FEED, 0) for each in fillers] == [False, True]


OTHER = "https://other.example/feeds/main"


def yielded(length: int = 1) -> Chain:
    """Set up a master that yielded to the feed that copies it, and let the copy read it."""
    chain = chained(length=length)
    assert chain.master.act("yield", to=chain.node.url) == "yielded"
    chain.master.scene.project()
    chain.run()
    return chain


def test_who_yielded_refuses_producers_and_names_the_successor() -> None:
    """A post in flight may complete; the end of the log is an empty page."""
    chain = chained()
    in_flight = chain.master.scene.log.take(FEED)
    chain.master.act("yield", to=chain.node.url)
    with pytest.raises(Yielded) as refused:
        chain.master.post("late")
    assert refused.value.body()["master"] == chain.node.url
    assert str(refused.value) == f"feed: is continued by {chain.node.url}: post there"
    document = chain.master.control.reporter.document(FEED)
    assert (document["role"], document["successor"]) == ("master", chain.node.url)
    assert document["head"] == in_flight + 1


def test_an_upstream_ends_when_every_number_was_told() -> None:
    """A writer that has one may still write its page."""
    chain = chained()
    chain.master.scene.log.take(FEED)
    chain.master.act("yield", to=chain.node.url)
    chain.master.scene.project()
    behind = chain.node.relay.place, ALL, 10_000
    assert not chain.master.replication_reader.pages(FEED, *behind).status.ended
    chain.time.ms += 60_000  # the writer is dead: its hole is filled
    chain.master.scene.project()
    chain.run()
    assert chain.node.relay.upstream_ended and chain.node.relay.is_complete


def test_a_copy_that_is_whole_is_promoted_and_goes_on_with_the_next_number() -> None:
    """Its log is the master's, and then its own."""
    chain = yielded()
    last = chain.node.pages()[-1][0]
    assert chain.node.act("promote") == "master"
    chain.time.ms += COPIES_TTL_MS
    WriteGuard(chain.node.copies).check(FEED)
    assert chain.node.post("new").number == last + 1
    chain.run()
    assert chain.node.relay.checkpoint == last  # it reads no upstream any more
    document = chain.node.control.reporter.document(FEED)
    assert document["role"] == document["status"] == "master"
    assert document["head"] == last + 1


def test_who_copies_the_copy_follows_it_still() -> None:
    """The promoted feed is its master then."""
    chain = yielded(length=2)
    chain.node.act("promote")
    chain.time.ms += COPIES_TTL_MS
    chain.node.post("new")
    chain.node.scene.project()
    chain.nodes[1].run()
    assert chain.nodes[1].pages() == chain.node.pages()
    assert chain.nodes[1].relay.master == chain.node.url


@pytest.mark.parametrize("why", [None, "the master burnt down"])
def test_what_may_lack_pages_is_promoted_for_a_reason_alone(why: str | None) -> None:
    """Without a fence it is unknown whether the master has more pages."""
    node = chained().node
    if why is None:
        with pytest.raises(IncompleteCopy, match="has not yielded"):
            node.act("promote")
        assert node.relay.wanted is Wanted.RUN
    else:
        assert node.act("promote", why=why) == "master"
        assert node.relay.why == why


def promoted_without_the_end() -> tuple[Chain, Place]:
    """Return a chain of two copies. The first was promoted without a page that the second one
    has."""
    chain = chained(2, length=2)
    chain.master.post_each(*"cd")
    gone = chain.nodes[1]
    chain.net.places[chain.node.url] = chain.master  # it read the master at that time
    gone.run()
    chain.net.places[chain.node.url] = chain.node
    chain.node.act("promote", why="the master burnt down")
    chain.time.ms += COPIES_TTL_MS
    return chain, gone.relay.place


def test_a_reader_of_what_was_given_up_is_told() -> None:
    """P5.7: this holds before and after the log has grown past the page that the reader has
    seen."""
    chain, gone = promoted_without_the_end()
    scene, here = chain.node.scene, chain.node.pages()
    assert gone.page == 4 and [page for page, _, _ in here] == [1, 2, here[-1][0]]
    for name in "xyz":
        assert names(caught_up(scene, gone.encode()))[0] == "reset"
        assert "reset" not in names(
            caught_up(scene, Place(2, PAGE_END, here[1][2] // 1000).encode())
        )
        chain.node.post(name)
    assert chain.node.losses.ranges(FEED) == ((3, here[-1][0] - 1),)


def test_a_copy_that_has_more_than_was_promoted_stops() -> None:
    """Its readers get a reset once its operator has reset the copy."""
    chain, gone = promoted_without_the_end()
    further = chain.nodes[1]
    further.run()
    assert further.relay.status == "other-log"
    assert "was lost" in further.relay.error
    further.act("reset", to="everything", why="a copy was promoted")
    chain.node.post("new")
    further.run()
    assert further.relay.status == "running"
    assert further.living() == chain.node.living()
    assert names(caught_up(further.scene, gone.encode()))[0] == "reset"


def test_a_copy_that_lacked_pages_as_well_goes_on() -> None:
    """P16.4: it copies the jump as one page, and stores the lost range for its readers."""
    chain = chained(2, length=2)
    seen = Place(3, PAGE_END, chain.time.ms // 1000)
    chain.node.act("promote", why="the master burnt down")
    chain.time.ms += COPIES_TTL_MS
    chain.node.post("new")
    behind = chain.nodes[1]
    behind.run()
    assert behind.pages() == chain.node.pages()
    assert behind.losses.ranges(FEED) == chain.node.losses.ranges(FEED)
    assert names(caught_up(behind.scene, seen.encode()))[0] == "reset"
    assert chain.node.losses.ranges(FEED)[0][1] < PAGE_NUMBER_MAX // JUMPS_MIN + 9


def test_a_part_and_half_a_copy_are_refused() -> None:
    """A state that is still being copied cannot be promoted, even with a reason."""
    part = chained(selection=Selection(share=Mod(2, frozenset({0})))).node
    with pytest.raises(IncompleteCopy, match="a part"):
        part.act("promote")
    half = yielded().node
    half.note(copy=Copy())
    with pytest.raises(IncompleteCopy, match="still copying"):
        half.act("promote", why="now")


def test_a_move_is_taken_back_for_a_reason() -> None:
    """Then the old master continues, and so do its copies."""
    chain = yielded()
    with pytest.raises(InvalidRelay):
        chain.master.act("promote")
    assert chain.master.act("promote", why="not yet") == "master"
    chain.master.post("again")
    chain.master.scene.project()
    chain.run()
    assert chain.node.pages() == chain.master.pages()
    with pytest.raises(IncompleteCopy):
        chain.node.act("promote")


def test_each_step_is_done_once_and_where_it_belongs() -> None:
    """An action that would change nothing is refused."""
    chain = yielded()
    with pytest.raises(NothingDone, match="has yielded"):
        chain.master.act("yield", to=chain.node.url)
    assert chain.master.act("yield", to=OTHER) == "yielded"
    with pytest.raises(InvalidRelay, match="is a copy"):
        chain.node.act("yield", to=OTHER)
    for to in (None, "b.example", 7):
        with pytest.raises(InvalidRelay):
            chain.master.act("yield", to=to)
    chain.node.act("promote")
    with pytest.raises(NothingDone, match="accepts posts"):
        chain.node.act("promote")
    with pytest.raises(NotChained):
        chain.node.act("pause")


def test_a_promoted_feed_becomes_a_copy_again_by_a_reset() -> None:
    """The reset is that of any copy that gives up its log."""
    chain = yielded()
    chain.node.act("promote")
    assert chain.node.act("reset", to="everything", why="wrong one") == "copying"
    assert chain.node.relay.wanted is Wanted.RUN


def test_a_promotion_is_seen_within_a_second() -> None:
    """Until then the cached answer is used; a feed whose relay cannot be read counts as a copy."""
    node = yielded().node
    copies = node.copies
    assert FEED in copies and dict(copies) == node.sources and len(copies) == 1
    node.act("promote")
    assert FEED in copies
    node.scene.now_ms += COPIES_TTL_MS
    assert FEED not in copies and dict(copies) == {}
    broken = Copies(node.sources, unreadable, node.scene.clock)
    assert copies.get("other") is None and FEED in broken


def unreadable() -> RelayStore:
    raise BrokenRelay(FEED, "a test")


def test_the_end_of_a_log_waits_for_nobody() -> None:
    """The request of a copy is answered at once, and it asks again a second later."""
    chain = yielded()
    requests = len(chain.net.asked)
    chain.run()
    assert (
        len(chain.net.asked) - requests > 100
    )  # in the minutes of a run: see `LEADER_LEASE_RENEW_MS`
