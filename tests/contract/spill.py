"""What every spill keeps to: `Spill`."""

from __future__ import annotations

from itertools import islice

from tests.contract.test_state import of_one_bucket, row
from tidings.core import limits
from tidings.core.maintenance.verify import Spill


class SpillContract:
    def test_rows_come_back_by_bucket_in_their_order(self, spill: Spill) -> None:
        """Unchanged, those of one object too; a spill without rows is empty."""
        one, two = of_one_bucket(2)
        bucket = row(one).bucket
        other = next(key for key in map("user/{}".format, range(99)) if row(key).bucket != bucket)
        spill.add([row(two, 1), row(other, 1, line="\u0085 ä€𝄞"), row(one, 1, expires_ms=5)])
        spill.add([row(two, 2)])
        assert list(spill.rows(bucket)) == [row(two, 1), row(one, 1, expires_ms=5), row(two, 2)]
        assert [each.key for each in spill.rows(row(other).bucket)] == [other]
        empty = next(number for number in range(limits.BUCKETS) if not list(spill.rows(number)))
        spill.add([])
        assert list(spill.rows(empty)) == []

    def test_what_is_added_while_rows_are_read_is_seen_later(self, spill: Spill) -> None:
        """A reader gets what was there when it began, at the least."""
        (key,) = of_one_bucket(1)
        spill.add([row(key, 1)])
        reading = spill.rows(row(key).bucket)
        assert list(islice(reading, 1)) == [row(key, 1)]
        spill.add([row(key, 2)])
        assert [each.page for each in spill.rows(row(key).bucket)] == [1, 2]
