"""Closed parts of the archive go into the tables of the feed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tidings.core.archive.compaction import Piece, pieces
from tidings.core.archive.segments import Span
from tidings.lake import transforms
from tidings.lake.errors import Hole, LakeError, Moved, PartGone
from tidings.lake.parts import Archive
from tidings.lake.tables import HISTORY, LATEST, Table
from tidings.lake.warehouse import Warehouse
from tidings.sync.spark_session import SPARK_ERRORS

# What a task raised, as the driver is told it: among lines of a traceback.
_RAISED = re.compile(r"tidings\.lake\.errors\.(Moved|PartGone): (.+)")
_ERRORS: dict[str, type[LakeError]] = {"Moved": Moved, "PartGone": PartGone}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of a run: what `history` got, and the last page that it has now."""

    operations: int
    through: int


@dataclass(frozen=True, slots=True)
class Loader:
    """
    Each table takes one commit. `latest` is made from `history`, which needs no part any more.

    *allow_gaps*: pages that the archive lacks, or whose operations are elsewhere, are passed over.
    """

    session: SparkSession
    archive: Archive
    warehouse: Warehouse
    allow_gaps: bool
    begin: Callable[[str], None]

    def load(self, spans: Sequence[Span]) -> Loaded:
        """
        Everything of *spans* that the tables lack.

        Raises:
            Hole, Moved: see there.
            Raced: another run committed meanwhile.
        """
        history, latest = self.table(HISTORY), self.table(LATEST)
        history.create()
        latest.create()
        self.begin("history")
        before = history.standing()
        wanted = self._pieces(spans, before.through)
        if wanted:
            rows = transforms.operations(self._entries(wanted))
            # What a run that was overtaken left behind this page is what we write, or less.
            behind = F.col("page") > before.through
            with original_errors():
                history.commit(rows, behind, wanted[-1].last, before)
        after = history.standing()
        self.begin("latest")
        if self._update(history, latest, after.through) or wanted:
            history.expire()
            latest.expire()
        return Loaded(after.added if wanted else 0, after.through)

    def table(self, kind: str) -> Table:
        return Table(self.session, self.warehouse, self.archive.feed, kind)

    def planned(self, spans: Sequence[Span]) -> Loaded:
        """What `load` would do; nothing is written."""
        history = self.table(HISTORY)
        through = history.standing().through if history.there() else 0
        wanted = self._pieces(spans, through)
        if not wanted:
            return Loaded(0, through)
        with original_errors():
            return Loaded(self._entries(wanted).count(), wanted[-1].last)

    def _entries(self, wanted: Sequence[Piece]) -> DataFrame:
        return self.archive.entries(self.session, wanted, whole=not self.allow_gaps)

    def _pieces(self, spans: Sequence[Span], through: int) -> list[Piece]:
        if not spans:
            return []
        after = through or min(span.first for span in spans) - 1
        wanted = list(pieces(spans, after, leap=self.allow_gaps))
        reached = wanted[-1].last if wanted else after
        missing = [span.first for span in spans if span.first > reached + 1]
        if missing:
            raise Hole(
                f"the archive lacks the pages {reached + 1:,} to {min(missing) - 1:,};"
                " let gaps be with --allow-gaps"
            )
        return wanted

    def _update(self, history: Table, latest: Table, through: int) -> bool:
        """Whether there was something to do."""
        before = latest.standing()
        if before.through >= through:
            return False
        news = history.rows().where(F.col("page") > before.through)
        rows = transforms.latest(latest.rows().unionByName(news))
        latest.commit(rows, F.lit(True), through, before)
        return True


@contextmanager
def original_errors() -> Iterator[None]:
    """What a task of ours raised is raised here, without Spark's words around it."""
    try:
        yield
    except SPARK_ERRORS as error:
        raised = _RAISED.search(str(error))
        if raised is None:
            raise
        raise _ERRORS[raised[1]](raised[2]) from None
