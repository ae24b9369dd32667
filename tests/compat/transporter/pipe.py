"""A feed with messages numbered from 0, named consumers of it, and stores to write to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.compat.oplog.wire import until
from tidings.client import Message, NamedConsumers, Poster, Unwritten, Worker
from tidings.client.retries import Closing

QUIET_S = 1.5  # a worker looks around once a second


@dataclass
class Store:
    """The target of a worker: it keeps batches, and refuses the messages in *poison*."""

    poison: set[int] = field(default_factory=set)
    batches: list[list[int]] = field(default_factory=list)
    resets: int = 0

    def write(self, batch: Sequence[Message]) -> None:
        if batch[0].event == "reset":
            self.resets += 1
            return
        numbers = [int(message.data["id"]) for message in batch]
        for index, number in enumerate(numbers):
            if number in self.poison:
                if numbers[:index]:
                    self.batches.append(numbers[:index])
                raise Unwritten(index, f"{number} is too long")
        self.batches.append(numbers)

    @property
    def written(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


class Pipe(Closing):
    def __init__(self, port: int, feed: str) -> None:
        self.url, self.port, self.feed = f"http://127.0.0.1:{port}", port, feed
        self.api = NamedConsumers(self.url, feed)
        self.ids: list[str] = []

    def close(self) -> None:
        self.api.close()

    def post(self, kinds: Iterable[str], *, together: bool = True) -> None:
        """Post a message of each type; message n is the object n."""
        made = [
            {"event": "insert", "type": kind, "id": str(len(self.ids) + at)}
            for at, kind in enumerate(kinds)
        ]
        with Poster(self.url, self.feed) as poster:
            for batch in [made] if together else [[each] for each in made]:
                self.ids += poster.post(batch)

    def register(self, *names: str, **wanted: Any) -> None:
        for name in names:
            self.api.register(name, wanted)

    def ack(self, name: str, *numbers: int, through: int | None = None) -> None:
        """Acknowledge as a worker that then ends silently."""
        fence = self.api.act(name, "lease", {"worker": "w"})["fence"]
        said: dict[str, Any] = {"ids": [self.ids[each] for each in numbers]}
        if through is not None:
            said["through"] = self.ids[through]
        self.api.act(name, "ack", {"fence": fence, **said})

    def operate(self, name: str, action: str, **more: str) -> dict[str, Any]:
        return self.api.act(name, action, {"why": "a test", "by": "ann", **more})

    def position(self, name: str) -> int | None:
        """Return the number of the last message up to which everything is acknowledged."""
        found = self.api.show(name)["position"]
        if found is None:
            return None
        behind = [at for at, each in enumerate(self.ids) if each[8:] <= found[8:]]
        return behind[-1] if behind else None

    def worker(self, name: str, **options: Any) -> Worker:
        options = {"feed": self.feed, "worker": "w", "transport": "sse", **options}
        return Worker(self.url, name, **options)

    @contextmanager
    def working(
        self, name: str, write: Callable[[Sequence[Message]], None], **options: Any
    ) -> Iterator[Working]:
        with self.worker(name, **options) as worker:
            running = Working(worker, write)
            yield running
        running.thread.join(60)

    def work(self, name: str, store: Store, wanted: Sequence[int], **options: Any) -> None:
        """Run until *wanted* is written and acknowledged, and a moment longer."""
        with self.working(name, store.write, **options):
            until(lambda: len(store.written) >= len(wanted))
            time.sleep(QUIET_S)
        assert store.written == list(wanted)

    def fails(self, name: str, store: Store, **options: Any) -> Unwritten:
        """Until the store refuses a message, which ends the worker."""
        with self.working(name, store.write, **options) as running:
            running.thread.join(60)
            assert isinstance(running.error, Unwritten)
        return running.error


class Working:
    """A worker in a thread of its own; *error* is what ended it."""

    def __init__(self, worker: Worker, write: Callable[[Sequence[Message]], None]) -> None:
        self.error: BaseException | None = None
        self.worker = worker
        self.thread = threading.Thread(target=self._run, args=(write,))
        self.thread.start()

    def _run(self, write: Callable[[Sequence[Message]], None]) -> None:
        try:
            self.worker.run(write)
        except Exception as error:  # noqa: BLE001 reported to the test
            self.error = error
