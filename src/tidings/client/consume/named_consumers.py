"""Requests of workers and operators about the named consumers of a feed (PROTOCOL 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tidings.client.transport.feed_api import Answer, FeedApi


class NamedConsumers(FeedApi):
    """Requests about the named consumers of one feed, and about its log."""

    def all(self) -> list[Answer]:
        consumers: list[Answer] = self.ask("GET", "consumers")["consumers"]
        return consumers

    def show(self, name: str) -> Answer:
        return self.ask("GET", _path(name))

    def register(self, name: str, wanted: Mapping[str, Any]) -> Answer:
        return self.ask("PUT", _path(name), body=wanted)

    def delete(self, name: str, why: Mapping[str, str]) -> Answer:
        return self.ask("DELETE", _path(name), query=why)

    def act(self, name: str, action: str, body: Mapping[str, Any]) -> Answer:
        """Send one of the actions of PROTOCOL 14."""
        return self.ask("POST", _path(name, action), body=body)

    def parked(self, name: str) -> list[Answer]:
        messages: list[Answer] = self.ask("GET", _path(name, "parked"))["parked"]
        return messages

    def notes(self, name: str) -> list[Answer]:
        notes: list[Answer] = self.ask("GET", _path(name, "notes"))["notes"]
        return notes

    def log(self, query: Mapping[str, str] | None = None) -> Answer:
        """Return the ends of the log, or the entries that *query* selects."""
        return self.ask("GET", "log", query=query)


def _path(name: str, below: str = "") -> str:
    return f"consumers/{quote(name, safe='')}" + (f"/{below}" if below else "")
