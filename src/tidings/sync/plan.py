"""
A plan on disk or in a bucket: corrections as gzipped NDJSON parts, and their summary.

    1-insert/*.txt.gz   2-update/...   3-delete/...   summary.json

Spark names its parts `part-*`. They are applied in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidings.core.model.operations import EVENTS, as_event
from tidings.core.sync.corrections import Correction, Position, correction, encode
from tidings.core.sync.dumps import Described, Objection, read_line

PART_LINES = 50_000  # about 2 MB compressed, applied in a few seconds: a retry repeats little
SUMMARY = "summary.json"
NAMES = {"insert": "creates", "update": "updates", "delete": "deletes"}  # the counts in a summary


@dataclass(frozen=True, slots=True)
class Summary:
    """
    The summary of a plan.

    *through* is the checkpoint of the follower `state` before the rows were read. *untouched*
    counts live objects that agree, are older in the dump, or are kept.
    """

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    untouched: int = 0
    by_type: dict[str, dict[str, int]] = field(default_factory=dict)
    lines: int = 0
    bad_lines: int = 0
    oldest: str = ""
    newest: str = ""
    known_whole: bool = False
    objects: int = 0
    through: int = 0

    @property
    def corrections(self) -> int:
        return self.creates + self.updates + self.deletes

    @property
    def events(self) -> list[str]:
        """Return the events that occur, in the order in which they are applied."""
        return [event for event in EVENTS if getattr(self, NAMES[event])]

    def encode(self) -> str:
        return json.dumps(asdict(self))


class Stopped(Exception):
    """A guard objects. *summary* has the counts so far; it is complete if *allowable*."""

    def __init__(self, objection: Objection, summary: Summary) -> None:
        self.objection, self.summary = objection, summary
        super().__init__(objection.sentence)


def write_parts(changes: DataFrame, folder: str, events: Iterable[str] = EVENTS) -> None:
    """
    Write the corrections of *changes* (`diff.compared`, rows with an event) below *folder*.

    *events* are those that occur.
    """
    encoded = F.udf(_encoded, StringType(), useArrow=False)
    for event in events:
        lines = changes.where(F.col("event") == event).select(encoded("event", "text", "at"))
        writer = lines.write.mode("overwrite").option("compression", "gzip")
        writer.option("maxRecordsPerFile", PART_LINES).text(f"{folder}/{subfolder(event)}")


def _encoded(event: str, text: bytearray, at: str) -> str:
    return encode(made(event, bytes(text), at))


def subfolder(event: str) -> str:
    """Return the folder of an event; its number is the order of application."""
    return f"{EVENTS.index(event) + 1}-{event}"


def made(event: str, text: bytes, at: str) -> Correction:
    """Return the correction from a line of the dump, or for a delete from a line of the state."""
    line = text.decode()
    if event != "delete":
        described = read_line(text)
        assert isinstance(described, Described)  # a compared line describes an object
        line = described.line
    position = Position(int(at[:10] or "0", 16), int(at[10:] or "0", 16))
    return correction(as_event(line, event), position)
