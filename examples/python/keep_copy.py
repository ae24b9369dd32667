"""Keep a copy of a feed in SQLite, across any restart: python keep_copy.py URL FILE

The position is saved in FILE.seen. Readers never see a half-empty copy: objects that a new copy no
longer contains are deleted when the new copy is complete, not when it starts.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import suppress

from tidings.client import Consumer, Delivery

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    type TEXT, id TEXT, data TEXT, copy INTEGER, PRIMARY KEY (type, id)
);
CREATE TABLE IF NOT EXISTS copies (number INTEGER);
"""
STORE = "INSERT OR REPLACE INTO objects SELECT ?, ?, ?, count(*) FROM copies"
FORGET = "DELETE FROM objects WHERE type = ? AND id = ?"
FORGET_OLDER = "DELETE FROM objects WHERE copy < (SELECT count(*) FROM copies)"


def handle(database: sqlite3.Connection, delivery: Delivery) -> None:
    data = delivery.data
    if delivery.name == "reset":
        database.execute("INSERT INTO copies VALUES (1)")
    elif delivery.name == "live":
        database.execute(FORGET_OLDER)
        print("live:", *database.execute("SELECT count(*) FROM objects").fetchone(), flush=True)
    elif delivery.name in ("insert", "update"):
        database.execute(STORE, (data["type"], data["id"], json.dumps(data)))
    else:  # delete or leave
        database.execute(FORGET, (data["type"], data["id"]))


def main(url: str, file: str) -> None:
    database = sqlite3.connect(file)
    database.executescript(SCHEMA)
    with Consumer(url, state_file=f"{file}.seen", allow_replication=True) as consumer:
        for delivery in consumer:
            with database:  # one transaction, finished before the event counts as handled
                handle(database, delivery)
            delivery.ack()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
