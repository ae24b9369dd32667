"""Consumers by name, and changes that are applied on top of concurrent ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryConsumers
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.consumers.service import ConsumerRepository, check_name
from tidings.core.errors import InvalidConsumer, Unavailable


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 64, "a/b"])
def test_T38_a_consumer_has_a_name_of_its_own(name: str) -> None:
    """Without a name it would start from the beginning each time."""
    with pytest.raises(InvalidConsumer, match="must be 1 to 63"):
        check_name(name)


def test_a_change_is_made_on_top_of_others() -> None:
    """A change that loses the race is tried again; after too many losses it fails and writes
    nothing."""
    store = MemoryConsumers()
    store.write("main", "c", 0, Change(Consumer("main", "c")))
    book, others = ConsumerRepository(store), [3]

    def change(consumer: Consumer) -> Change:
        if others[0]:
            others[0] -= 1
            theirs = replace(consumer, parked=consumer.parked + 1)
            store.write("main", "c", consumer.version, Change(theirs))
        return Change(replace(consumer, paused=not consumer.paused))

    assert book.change("main", "c", change).parked == 3
    others[0] = 99
    with pytest.raises(Unavailable, match="kept changing"):
        book.change("main", "c", change)


def test_what_changes_nothing_is_not_written() -> None:
    """It costs a read."""
    store = MemoryConsumers()
    store.write("main", "c", 0, Change(Consumer("main", "c")))
    assert ConsumerRepository(store).change("main", "c", Change).version == 1
    assert ConsumerRepository(store).consumer("main", "c").version == 1
