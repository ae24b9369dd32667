"""What every store of sheets keeps to: `Sheets`."""

from __future__ import annotations

from tidings.core.changeagent.documents import DEPLOYMENT, HEALTH, USERS, Sheet

from tests.contract.stores import Stores


class SheetsContract:
    def test_what_was_never_written_is_empty(self, stores: Stores, feed: str) -> None:
        """With the version that the first one who writes has to name."""
        assert stores.sheets.sheet(feed, USERS) == Sheet("", 0)

    def test_a_sheet_comes_back(self, stores: Stores, feed: str) -> None:
        """By its name, apart from other names and feeds; empty texts too."""
        assert stores.sheets.write(feed, USERS, Sheet("a:b\n\u00e4", 0))
        assert stores.sheets.write(DEPLOYMENT, HEALTH, Sheet("down", 0))
        assert stores.sheets.sheet(feed, USERS) == Sheet("a:b\n\u00e4", 1)
        assert stores.sheets.sheet(DEPLOYMENT, HEALTH) == Sheet("down", 1)
        assert stores.sheets.sheet(f"{feed}-other", USERS) == Sheet()
        assert stores.sheets.write(feed, USERS, Sheet("", 1))
        assert stores.sheets.sheet(feed, USERS) == Sheet("", 2)

    def test_two_who_write_at_once_cannot_undo_each_other(self, stores: Stores, feed: str) -> None:
        """The second one finds another version, and nothing of it is written."""
        assert stores.sheets.write(feed, USERS, Sheet("first", 0))
        assert not stores.sheets.write(feed, USERS, Sheet("second", 0))
        assert not stores.sheets.write(feed, USERS, Sheet("third", 7))
        assert stores.sheets.sheet(feed, USERS) == Sheet("first", 1)
