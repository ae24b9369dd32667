"""Create and delete feeds: records, keys, settings, generations, and what old cursors are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryFeeds
from tests.unit.core.scene import FEED, FEEDS, NOW, Host, Scene, line
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.errors import (
    FeedDeleted,
    FeedInUse,
    InvalidFeed,
    InvalidSetting,
    TooManyRequests,
    Unavailable,
    UnknownFeed,
)
from tidings.core.feeds.directory import Directory
from tidings.core.feeds.records import (
    DELETED,
    DELETING,
    LIVE,
    TABLES_KEPT,
    TABLES_PENDING,
    FeedRecord,
    Removal,
)
from tidings.core.feeds.service import Feeds, jump_end
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import HOST, key_of, number_of, public_name
from tidings.core.settings.profiles import Profile

NAME = "orders"


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def host(scene: Scene) -> Host:
    return Host(scene)


@pytest.fixture
def feeds(host: Host) -> Feeds:
    return host.feed_service


def leave(profile: Profile) -> Profile:
    return replace(profile, leave=True)


def delete(
    feeds: Feeds, name: str = NAME, *, force: bool = False, tables: bool = False
) -> FeedRecord:
    return feeds.delete(name, confirm=name, force=force, tables=tables, by="ann")


def finish(scene: Scene, name: str = NAME) -> None:
    """Mark the removals of *name* as done, as the job does."""
    record = scene.feeds.record(name)
    assert record is not None
    for removal in record.unfinished:
        record = record.with_removal(replace(removal, done_ms=1))
    assert scene.feeds.save(record)


def test_keys_are_made_of_names() -> None:
    """A name never has a mark, so no two feeds of any names have the same key."""
    assert [key_of(NAME, number) for number in (1, 2, 11)] == [NAME, "orders~2", "orders~11"]
    for number in (1, 2, 11):
        key = key_of(NAME, number)
        assert (public_name(key), number_of(key)) == (NAME, number)
    with pytest.raises(InvalidFeed):
        Directory(MemoryFeeds(), FEEDS, lambda: 0).key("orders~2")


def test_a_feed_is_created_once(scene: Scene, host: Host) -> None:
    """The second request applies its settings. The process that answered uses the feed at once."""
    with pytest.raises(UnknownFeed):
        host.directory.key(NAME)
    record, is_new = host.feed_service.create(NAME, leave, by="ann")
    assert is_new and record == FeedRecord(NAME, created_ms=NOW, by="ann", version=1)
    assert host.directory.key(NAME) == NAME
    assert scene.profiles.profile(NAME).leave
    again, is_new = host.feed_service.create(NAME, lambda each: replace(each, object_url="/x"))
    assert not is_new and again == record == host.feed_service.show(NAME)
    assert scene.profiles.profile(NAME) == Profile(leave=True, object_url="/x", version=2)


def test_a_configured_feed_exists_without_a_record(scene: Scene, feeds: Feeds) -> None:
    record, is_new = feeds.create(FEED, leave)
    assert (record, is_new) == (FeedRecord(FEED), False)
    assert scene.feeds.record(FEED) is None
    assert scene.profiles.profile(FEED).leave


def test_names_and_settings_are_checked_first(scene: Scene, feeds: Feeds) -> None:
    for name in ("", "A", HOST, "a~2", "x" * 64):
        with pytest.raises(InvalidFeed):
            feeds.create(name)
    with pytest.raises(InvalidSetting):
        feeds.create(NAME, lambda each: replace(each, compat="unknown"))
    assert scene.feeds.record(NAME) is None


def test_a_new_feed_begins_with_the_settings_of_the_host(scene: Scene, feeds: Feeds) -> None:
    """It does not get the credentials of the host. An existing feed keeps its settings."""
    scene.profiles.save(
        HOST, Profile("/{{id}}", leave=True, closed=True, read_passwords=("x",), ids_personal=False)
    )
    feeds.create(NAME, lambda each: replace(each, ids_personal=True))
    assert scene.profiles.profile(NAME) == Profile("/{{id}}", leave=True, version=1)
    feeds.create(FEED)
    scene.profiles.save("other", Profile(forget_after_days=3))
    feeds.create("other", lambda each: replace(each, compat="oplog"))
    assert scene.profiles.profile("other") == Profile(
        compat="oplog", forget_after_days=3, version=2
    )


def test_a_deletion_is_one_write_of_the_record(scene: Scene, host: Host) -> None:
    feeds = host.feed_service
    feeds.create(NAME)
    scene.log.raise_head(NAME, 7)
    scene.now_ms += 5
    record = delete(feeds)
    assert record == FeedRecord(
        NAME, 1, False, NOW, NOW + 5, "ann", 7, (Removal(1, NOW + 5),), version=2
    )
    assert record == scene.feeds.record(NAME) and record.state == DELETING
    for refuse in (host.directory.key, host.directory.check):
        with pytest.raises(FeedDeleted, match="was deleted"):
            refuse(NAME)
    assert host.directory.find(NAME) is None
    assert NAME not in [*host.directory.all_keys()]


def test_a_deletion_is_idempotent(scene: Scene, feeds: Feeds) -> None:
    """The second request answers the same record, also when all data was removed."""
    feeds.create(NAME)
    record = delete(feeds)
    assert delete(feeds, force=True, tables=True) == record
    finish(scene)
    assert delete(feeds).state == DELETED
    with pytest.raises(UnknownFeed):
        delete(feeds, "never")


def test_a_deletion_must_be_confirmed(scene: Scene, feeds: Feeds) -> None:
    feeds.create(NAME)
    for confirm in ("", "order", "Orders", "orders "):
        with pytest.raises(InvalidFeed, match="confirm: must repeat the name"):
            feeds.delete(NAME, confirm=confirm)
    assert feeds.show(NAME).is_live


def test_a_feed_in_use_is_deleted_by_force(scene: Scene, feeds: Feeds) -> None:
    """The error names its users, up to a limit."""
    feeds.create(NAME)
    for number in range(limits.FEED_USERS_SHOWN + 2):
        name = f"c{number:02}"
        scene.consumers.write(NAME, name, 0, Change(Consumer(NAME, name)))
    with pytest.raises(FeedInUse, match=r"the consumer c00, .* and 2 more; remove them") as error:
        delete(feeds)
    assert "c09" in str(error.value) and "c10" not in str(error.value)
    assert delete(feeds, force=True).state == DELETING


def test_a_configured_feed_stays_deleted(scene: Scene, host: Host) -> None:
    """The record wins over the configuration, also in a new process."""
    delete(host.feed_service, FEED)
    for process in (host, Host(scene)):
        with pytest.raises(FeedDeleted):
            process.directory.key(FEED)
        assert [*process.directory.all_keys()] == ["other"]


def test_tables_are_dropped_only_on_request(scene: Scene, feeds: Feeds) -> None:
    feeds.create(NAME)
    (removal,) = delete(feeds, tables=True).removals
    assert removal.tables == TABLES_PENDING
    assert not replace(removal, done_ms=1).is_done
    assert replace(removal, done_ms=1, tables=TABLES_KEPT).is_done


class TestSuccessors:
    """A feed that is created after a deletion."""

    def test_it_has_another_key(self, scene: Scene, host: Host) -> None:
        """It exists at once, while the data of its predecessor is still being removed."""
        host.feed_service.create(NAME)
        delete(host.feed_service)
        record, is_new = host.feed_service.create(NAME, leave, by="bob")
        assert is_new and record.state == LIVE
        assert (record.number, record.by, record.deleted_ms) == (2, "bob", 0)
        assert [each.number for each in record.unfinished] == [1]
        assert host.directory.key(NAME) == "orders~2"
        assert scene.profiles.profile("orders~2").leave
        with pytest.raises(FeedDeleted):
            host.directory.check(NAME)

    def test_its_log_begins_after_every_number_of_its_predecessors(
        self, scene: Scene, feeds: Feeds
    ) -> None:
        """Also after numbers that a slow process assigned after the deletion."""
        feeds.create(NAME)
        scene.log.raise_head(NAME, 40)
        delete(feeds)
        for number in (2, 3):
            key, last = key_of(NAME, number), feeds.show(NAME).last_page
            feeds.create(NAME)
            end = jump_end(last)
            assert end - last > limits.NUMBERS_PER_S_MAX * limits.FEED_AGE_MS // 1000
            (page,) = scene.log.read(key, 0)
            assert (page.first, page.number, page.body) == (1, end, "")
            assert scene.log.take(key) == end + 1
            assert scene.profiles.profile(key).lost == ((1, end - 1),)
            delete(feeds)
        assert feeds.show(NAME).last_page > 2 * jump_end(40) - 40

    def test_old_cursors_are_lost(self, scene: Scene, host: Host) -> None:
        """Cursors of the successor are not, including the one before its first operation."""
        host.feed_service.create(NAME)
        scene.log.raise_head(NAME, 40)
        delete(host.feed_service)
        host.feed_service.create(NAME)
        key, end = "orders~2", jump_end(40)
        losses = host.losses
        for number in (1, 40, end - 1):
            assert losses(key, Place(number, 0, 1))
        assert not losses(key, Place(end, 0, 1)) and not losses(key, Place(end + 1, 0, 1))

    def test_it_works_like_any_feed(self, scene: Scene, host: Host) -> None:
        """Followers pass the jump, and readers get what is posted afterwards."""
        host.feed_service.create(NAME)
        delete(host.feed_service)
        host.feed_service.create(NAME)
        key = host.directory.key(NAME)
        host.appender.append(key, [line("a")])
        host.follower.run(key, host.projector())
        assert host.reader.checkpoints.checkpoints(key)["state"] == jump_end(0) + 1

    def test_it_is_created_when_no_process_uses_its_predecessor(
        self, scene: Scene, host: Host
    ) -> None:
        """Otherwise an operation could be acknowledged and added to the deleted feed."""
        host.directory.stale_ms = 5_000
        feeds = host.feed_service
        feeds.create(NAME)
        delete(feeds)
        scene.now_ms += 2_000
        scene.waits.clear()
        feeds.create(NAME)
        delete(feeds)
        scene.now_ms += 5_000
        feeds.create(NAME)
        delete(feeds)
        scene.now_ms -= 60_000
        feeds.create(NAME)
        assert scene.waits == [3_000, 5_000]

    def test_unfinished_removals_are_limited(
        self, scene: Scene, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A record has a limited size. Finished removals make room, and the latest are reported."""
        monkeypatch.setattr(limits, "REMOVALS_MAX", 3)
        for _ in range(3):
            feeds.create(NAME)
            delete(feeds)
        with pytest.raises(TooManyRequests, match="still being removed"):
            feeds.create(NAME)
        finish(scene)
        feeds.create(NAME)
        assert len(delete(feeds).removals) == limits.REMOVALS_KEPT + 1

    def test_a_late_creation_does_not_reset_the_profile(self, scene: Scene, feeds: Feeds) -> None:
        """Another request has created the feed and a credential in the meantime. If the profile
        were replaced, the feed would be open.
        """
        feeds.create(NAME)
        delete(feeds)
        scene.profiles.save("orders~2", Profile(closed=True, read_passwords=("x",)))
        feeds.create(NAME, leave)
        profile = scene.profiles.profile("orders~2")
        assert profile.closed and profile.read_passwords == ("x",) and profile.leave
        assert profile.lost == ((1, jump_end(0) - 1),)


class Failing(MemoryFeeds):
    """A store that fails at the call number *at*, before or after the write."""

    def __init__(self, at: int = 0, *, after: bool = False) -> None:
        super().__init__()
        self.at, self.after, self.calls = at, after, 0

    def save(self, record: FeedRecord) -> bool:
        self.calls += 1
        if self.calls == self.at and not self.after:
            raise Unavailable("not now")
        saved = super().save(record)
        if self.calls == self.at:
            raise Unavailable("not now")
        return saved


class Racing(MemoryFeeds):
    """A store in which another request creates the feed before the first write."""

    def save(self, record: FeedRecord) -> bool:
        if self.record(record.name) is None:
            super().save(FeedRecord(record.name, by="other"))
        return super().save(record)


def test_the_second_of_two_requests_finds_the_feed(scene: Scene) -> None:
    scene.feeds = Racing()
    record, is_new = Host(scene).feed_service.create(NAME, leave, by="ann")
    assert (record.by, is_new) == ("other", False)
    assert scene.profiles.profile(NAME).leave


@pytest.mark.parametrize("after", [False, True])
def test_a_request_is_repeated_after_a_failure(scene: Scene, *, after: bool) -> None:
    """Whether the write was done or not, the next request ends in the same state."""
    scene.feeds = store = Failing(after=after)
    feeds = Host(scene).feed_service
    for step in (lambda: feeds.create(NAME), lambda: delete(feeds), lambda: feeds.create(NAME)):
        store.at = store.calls + 1
        with pytest.raises(Unavailable):
            step()
        step()
    record = feeds.show(NAME)
    assert (record.number, record.is_live, len(record.removals)) == (2, True, 1)
    assert len(scene.log.read("orders~2", 0)) == 1


class TestDirectory:
    def test_records_are_cached(self, scene: Scene) -> None:
        """Others see a change within five seconds; a name without a feed is cached as well."""
        directory = Directory(scene.feeds, FEEDS, scene.clock)
        assert directory.find(NAME) is None
        scene.feeds.save(FeedRecord(NAME))
        scene.feeds.save(FeedRecord(FEED, is_live=False))
        scene.now_ms += limits.FEED_AGE_MS - 1
        assert directory.find(NAME) is None
        scene.now_ms += 1
        assert directory.key(NAME) == NAME
        assert directory.find(FEED) is None
        scene.now_ms -= limits.FEED_AGE_MS  # a clock that is set back must not keep a record
        scene.feeds.save(FeedRecord(NAME, is_live=False, version=1))
        assert directory.find(NAME) is None

    @pytest.mark.parametrize("number", [1, 2])
    def test_a_record_that_is_older_than_a_feed_is_read_again(
        self, scene: Scene, number: int
    ) -> None:
        """A function that is woken for a new feed must not drop its wake-up."""
        if number > 1:
            scene.feeds.save(FeedRecord(NAME, is_live=False))
        directory = Directory(scene.feeds, FEEDS, scene.clock)
        assert directory.find(NAME) is None
        key = key_of(NAME, number)
        assert not directory.exists(key)
        scene.feeds.save(FeedRecord(NAME, number, version=number - 1))
        assert directory.exists(key)
        assert not directory.exists(key_of(NAME, number + 1))
        assert number == 1 or not directory.exists(NAME)

    def test_memory_is_bounded(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "FEEDS_KNOWN_MAX", 10)
        directory = Directory(scene.feeds, FEEDS, scene.clock)
        for number in range(50):
            directory.find(f"n{number}")
        assert len(directory._known) == 10

    def test_a_read_that_began_before_a_change_is_not_used(self, scene: Scene) -> None:
        """Another thread has deleted the feed while this one was reading its record."""
        directory = Directory(scene.feeds, FEEDS, scene.clock)

        class Late(MemoryFeeds):
            def record(self, name: str) -> FeedRecord | None:
                directory.forget()
                return None

        directory.store = Late()
        assert directory.find(FEED) == FEED
        directory.store = scene.feeds
        scene.feeds.save(FeedRecord(FEED, is_live=False))
        assert directory.find(FEED) is None

    def test_lists_have_configured_feeds_too(self, scene: Scene) -> None:
        """Every part is complete and in order, whatever lies between the stored names."""
        configured = frozenset(f"n{number:02}" for number in range(0, 40, 3))
        stored = {f"n{number:02}" for number in range(0, 40, 2)}
        for name in stored:
            scene.feeds.save(FeedRecord(name, number=2, is_live=name != "n06"))
        directory = Directory(scene.feeds, configured, scene.clock)
        found: list[FeedRecord] = []
        while part := directory.records(found[-1].name if found else "", 4):
            assert len(part) <= 4
            found += part
        assert [each.name for each in found] == sorted(configured | stored)
        assert [each.name for each in directory.all()] == sorted(configured | stored)
        keys = [*directory.all_keys()]
        assert "n00~2" in keys and "n03" in keys and "n06~2" not in keys
        assert len(keys) == len(found) - 1
