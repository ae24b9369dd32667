"""What everything keeps to that renews pages: `RenewStore`."""

from __future__ import annotations

from tidings.core.log.renewal import Round
from tidings.core.model.pages import Page

from tests.contract.log_store import AT, EXPIRES, page
from tests.contract.stores import Stores


class RenewStoreContract:
    def test_renewing_a_missing_page_creates_nothing(self, stores: Stores, feed: str) -> None:
        """A page that was deleted stays deleted."""
        stores.renewals.renew(feed, 1, EXPIRES)
        assert stores.log.read(feed, 0) == []
        assert stores.log.put(feed, page(1, "ours")) == "ours"

    def test_renewed_pages_expire_later(self, stores: Stores, feed: str) -> None:
        """Never sooner; a page that is not to expire stays so."""
        for number in range(1, 5):
            stores.log.put(feed, page(number))
        stores.log.put(feed, Page(5, "{}", "a", AT, 0))
        stores.renewals.renew(feed, 2, EXPIRES + 60_000)
        stores.renewals.renew(feed, 2, EXPIRES)
        stores.renewals.renew(feed, 5, EXPIRES)
        found = [(1, EXPIRES), (2, EXPIRES + 60_000), (3, EXPIRES), (4, EXPIRES), (5, 0)]
        assert list(stores.renewals.expiries(feed, 0, 9)) == found
        assert list(stores.renewals.expiries(feed, 1, 3)) == found[1:3]
        assert list(stores.renewals.expiries(feed, 3, 3)) == []
        assert list(stores.renewals.expiries(f"{feed}0", 0, 9)) == []

    def test_a_round_is_kept_of_each_feed(self, stores: Stores, feed: str) -> None:
        """The last one that was stored."""
        assert stores.renewals.round(feed) == Round()
        for round_ in (Round(7, AT), Round(0, AT + 1)):
            stores.renewals.keep(feed, round_)
            assert stores.renewals.round(feed) == round_
        assert stores.renewals.round(f"{feed}0") == Round()
