"""Holding: one key has so many streams and no more, whatever became of those who served them."""

from __future__ import annotations

import pytest
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Given
from tidings.core.catchup.sse import Stream
from tidings.core.errors import TooManyRequests
from tidings.core.settings.feed import Profile

from tests.core.scene import FEED, Scene, shown


def opened(scene: Scene, given: Given | None, cursor: str = "now") -> Stream:
    return scene.streamer.open(FEED, cursor, given=shown(given) if given else None)


def test_a_key_holds_so_many_streams(scene: Scene) -> None:
    """The next one is refused until another ends; other keys and passwords are not concerned."""
    for _ in range(4):
        opened(scene, None)  # before there is a key, which closes the feed
    given, other = scene.key(Role.READ, streams=3), scene.key(Role.READ, streams=3)
    streams = [opened(scene, given) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(TooManyRequests, match="hold 3 streams open at once") as refused:
            opened(scene, given)
    assert (refused.value.status, refused.value.retry_after_s) == (429, limits.STREAM_HELD_RETRY_S)
    opened(scene, other)

    streams[0].close()
    streams[0].close()  # the second time is nothing
    opened(scene, given)
    with pytest.raises(TooManyRequests):
        opened(scene, given)


def test_what_says_nothing_has_a_bound_too(scene: Scene) -> None:
    """A key of the release before."""
    given = scene.key(Role.READ)
    for _ in range(limits.KEY_STREAMS):
        opened(scene, given)
    with pytest.raises(TooManyRequests):
        opened(scene, given)


def test_the_hold_of_a_process_that_died_ends(scene: Scene) -> None:
    """When no function lives any more that could serve it."""
    given = scene.key(Role.READ, streams=1)
    opened(scene, given)
    scene.now_ms += limits.STREAM_HOLD_MS
    opened(scene, given)


def test_a_stream_that_lasts_is_counted_for_as_long_as_it_lasts(scene: Scene) -> None:
    """A server does not end streams: it renews their holds."""
    given = scene.key(Role.READ, streams=1)
    stream = opened(scene, given)
    for _ in range(4):
        scene.now_ms += limits.STREAM_HOLD_MS * 2 // 3
        stream.renew()
        with pytest.raises(TooManyRequests):
            opened(scene, given)

    stream.close()
    stream.renew()
    opened(scene, given)


def test_who_is_refused_holds_nothing(scene: Scene) -> None:
    """A request that is wrong for another reason takes no place."""
    given = scene.key(Role.READ, streams=1)
    for _ in range(3):
        with pytest.raises(Exception, match="cursor"):
            opened(scene, given, "no cursor")
    opened(scene, given)


def test_passwords_hold_without_a_bound(scene: Scene) -> None:
    """They are one for all: a bound would be that of the feed."""
    assert scene.profiles.save(FEED, Profile())
    assert [opened(scene, None).hold for _ in range(limits.KEY_STREAMS + 1)][-1] is None
