"""What every store keeps to whose numbers a restore goes on with: `Numbers`."""

from __future__ import annotations

from tidings.core.model.pages import filler

from tests.contract.stores import Stores

AT = 4_102_444_800_000  # 2100: no engine deletes it meanwhile


class NumbersContract:
    def test_the_counter_goes_on_above(self, stores: Stores, feed: str) -> None:
        """Also of a feed that has none yet; and it never goes back."""
        stores.numbers.raise_head(feed, 41)
        assert stores.log.take(feed) == 42
        stores.numbers.raise_head(feed, 7)
        assert stores.log.take(feed) == 43

    def test_empty_pages_are_put_again_without_harm(self, stores: Stores, feed: str) -> None:
        """More than one batch of them, and a run that was killed puts them once more."""
        pages = [filler(number, at_ms=AT, expires_ms=AT + 1000) for number in range(3, 64)]
        stores.numbers.fill(feed, pages[:30])
        stores.numbers.fill(feed, pages)
        found = stores.log.read(feed, 0)
        assert [page.number for page in found] == list(range(3, 64))
        assert {(page.body, page.at_ms) for page in found} == {("", AT)}
