"""Appending: a number, a page, and only then the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryLog
from tests.unit.core.scene import FEED, NOW, PAGE_MS, Scene, line
from tidings.core import limits
from tidings.core.errors import KeyReused, TooLarge, Unavailable
from tidings.core.log.append import Appender
from tidings.core.model import pages
from tidings.core.model.pages import FILLER_ID, Page

LINES = [line("a"), line("b")]


class Overtaken(MemoryLog):
    """A log where readers fill the next *fillers* numbers before their writer comes."""

    def __init__(self, fillers: int) -> None:
        super().__init__()
        self.fillers, self.refused = fillers, list[int]()

    def put(self, feed: str, page: Page) -> str:
        if self.fillers and page.append_id != FILLER_ID:
            self.fillers -= 1
            self.refused.append(page.number)
            super().put(feed, pages.filler(page.number, at_ms=NOW, expires_ms=NOW))
        return super().put(feed, page)


def overtaken(scene: Scene, fillers: int) -> tuple[Appender, Overtaken]:
    log = Overtaken(fillers)
    return replace(scene.appender, log=log), log


def bodies(log: MemoryLog) -> list[list[str]]:
    return [page.lines for page in log.read(FEED, 0)]


def test_what_is_appended_is_in_the_log(scene: Scene) -> None:
    """Under the number, time and expiry the answer names."""
    appended = scene.appender.append(FEED, LINES)

    (page,) = scene.log.read(FEED, 0)
    assert (page.number, page.lines, page.at_ms) == (1, LINES, NOW)
    assert appended.id_prefix == page.id_prefix
    assert appended.expires_ms == NOW + PAGE_MS


@given(st.lists(st.lists(st.sampled_from(LINES), min_size=1, max_size=3), max_size=10))
def test_pages_follow_each_other(batches: list[list[str]]) -> None:
    """From 1 on, without a gap, in the order they were appended."""
    scene = Scene()

    numbers = [scene.appender.append(FEED, lines).number for lines in batches]

    assert numbers == list(range(1, len(batches) + 1))
    assert bodies(scene.log) == batches


def test_who_is_overtaken_takes_a_new_number(scene: Scene) -> None:
    """The page is written once, after the fillers."""
    appender, log = overtaken(scene, 3)

    assert appender.append(FEED, LINES).number == 4
    assert bodies(log) == [[], [], [], LINES]


@pytest.mark.parametrize("key", [None, "key"])
def test_overtaken_for_ever_is_an_outage(scene: Scene, key: str | None) -> None:
    """After a few attempts the producer gets a temporary error, with a key and without one."""
    appender, log = overtaken(scene, 100)

    with pytest.raises(Unavailable, match="main: found a filler 8 times in a row"):
        if key:
            appender.append_once(FEED, LINES, key, "print")
        else:
            appender.append(FEED, LINES)
    assert len(log.refused) == limits.APPEND_ATTEMPTS_MAX


def test_what_fits_no_page_takes_no_number(scene: Scene) -> None:
    """A refusal leaves no hole."""
    with pytest.raises(TooLarge):
        scene.appender.append(FEED, NOISE)
    with pytest.raises(TooLarge):
        scene.appender.append_once(FEED, NOISE, "key", "print")
    assert scene.log.head(FEED) == 0
    assert scene.claims.find(FEED, "key", now_ms=NOW) is None


def test_with_a_key_it_is_appended_once(scene: Scene) -> None:
    """The repetition gets the same page, with the time it was written at."""
    first = scene.appender.append_once(FEED, LINES, "key", "print")
    scene.now_ms += 5000

    again = scene.appender.append_once(FEED, LINES, "key", "print")

    assert (again.number, again.lines) == (first.number, LINES)
    assert again.id_prefix == first.id_prefix
    assert len(bodies(scene.log)) == 1 == scene.log.head(FEED)


def test_a_key_belongs_to_one_request(scene: Scene) -> None:
    """With another body it is refused, and nothing is written."""
    scene.appender.append_once(FEED, LINES, "key", "print")

    with pytest.raises(KeyReused, match="Idempotency-Key: belongs to another request"):
        scene.appender.append_once(FEED, LINES[:1], "key", "another")
    assert len(bodies(scene.log)) == 1 == scene.log.head(FEED)


def test_a_key_is_forgotten_after_a_day(scene: Scene) -> None:
    """Then it is a new request."""
    scene.appender.append_once(FEED, LINES, "key", "print")
    scene.now_ms += limits.CLAIM_MS
    scene.appender.append_once(FEED, LINES[:1], "key", "another")

    assert bodies(scene.log) == [LINES, LINES[:1]]


def test_a_writer_that_died_is_finished_by_its_retry(scene: Scene) -> None:
    """The claim names the page before it is written, so the retry closes the very hole."""
    claim = scene.appender._claim(FEED, "key", "print", operations=2)

    finished = scene.appender.append_once(FEED, LINES, "key", "print")

    assert finished.number == claim.page == 1
    assert bodies(scene.log) == [LINES]


def test_two_at_once_with_one_key(scene: Scene) -> None:
    """The loser gives its number back as a filler and gets the winner's page."""
    scene.appender._claim(FEED, "key", "print", operations=2)
    second = scene.appender._claim(FEED, "key", "print", operations=2)

    assert second.page == 1
    assert scene.appender._aim(FEED, pages.encode(LINES), second).number == 1
    assert scene.appender._aim(FEED, pages.encode(LINES), second).number == 1
    assert bodies(scene.log) == [LINES, []]


def test_a_claimed_page_that_was_filled_moves_on(scene: Scene) -> None:
    """Overtaken before the write: the claim names another page, for retries too."""
    appender, log = overtaken(scene, 2)

    assert appender.append_once(FEED, LINES, "key", "print").number == 3
    assert appender.append_once(FEED, LINES, "key", "print").number == 3
    assert bodies(log) == [[], [], LINES]


def test_two_that_are_overtaken_with_one_key_write_one_page(scene: Scene) -> None:
    """Both see the filler; one moves the claim, the other follows it and gives its number back."""
    stale = scene.appender._claim(FEED, "key", "print", operations=2)
    scene.log.put(FEED, pages.filler(1, at_ms=NOW, expires_ms=NOW))
    body = pages.encode(LINES)

    numbers = {scene.appender._aim(FEED, body, stale).number for _ in range(2)}

    assert numbers == {2}
    assert bodies(scene.log) == [[], LINES, []]


def noise() -> list[str]:
    """Return more text than a page can pack: hex digits of a sequence that does not repeat."""
    value, lines = 1, []
    for _ in range(400):
        value = pow(3, value % 10007 + 5000, 1 << 8192)
        lines.append(f"{value:x}")
    return lines


NOISE = noise()


def test_a_writer_that_was_overtaken_counts_once(scene: Scene) -> None:
    """Its operations are received with the first number; further ones are its own affair."""
    appender, log = overtaken(scene, 3)
    appender.append(FEED, LINES)
    assert (log.log_counter(FEED).page, log.log_counter(FEED).operations) == (4, 2)
    log.fillers = 2
    appender.append_once(FEED, LINES, "key", "print")
    appender.append_once(FEED, LINES, "key", "print")

    assert log.log_counter(FEED).operations == 4
