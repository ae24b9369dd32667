"""A server with a data file that was restored: every reader that saw more is notified (PROTOCOL
5.7, 5.9).

One server is restored from a backup under its address. Readers of all kinds return to it twice with
the cursors that they had: before any new post, and after the log has grown by more pages than were
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.compat.oplog.wire import until
from tests.conformance.listeners import SocketListener
from tests.unit.server.test_crashes import FEED, Producer, hosted
from tidings.client.cli.main import main
from tidings.client.fold import Fold
from tidings.core.changeagent.changes import end_of
from tidings.core.model.cursors import PAGE_END, Place, Replication, parse
from tidings.server import operating, recovery
from tidings.server.running import Server
from tidings.spark.options import Gone
from tidings.spark.reader import TidingsSource

NDJSON = "application/x-ndjson"
JSON = {"content-type": "application/json"}
PATIENCE_S = 180.0
KEPT, LOST, NEW = 3, 3, 8  # posts before the backup, after it, and after the restore
CLIENT = httpx.Client(timeout=PATIENCE_S)


@dataclass
class Restored:
    """What readers got from the restored server: by reader, before and after it has grown."""

    server: Server
    relay: Server
    told: dict[str, list[Any]] = field(default_factory=dict)
    last: str = ""  # the id of the last operation that was lost
    offset: str = ""  # after the last message of the durable stream
    relay_cursor: str = ""

    @property
    def place(self) -> Place:
        place = parse(self.last)
        assert isinstance(place, Place)
        return place

    def url(self, path: str) -> str:
        return f"{self.server.url}feeds/main/{path}"

    def post(self, name: str) -> str:
        operation = {"event": "update", "type": "video", "id": name}
        headers = {"prefer": "return=representation"}
        answer = CLIENT.post(self.url("ops"), json=operation, headers=headers)
        return str(answer.raise_for_status().json()["ids"][0])

    def note(self, reader: str, told: Any) -> None:
        self.told.setdefault(reader, []).append(told)

    def read_everywhere(self) -> None:
        """Read as each kind of reader, with the cursors from before the restore."""
        page, since = self.place.page, end_of(self.place.page)
        self.note("sse", names_from(self.server, self.last))
        copying = Replication(0, page, 7, tombstones=False).encode()
        self.note("copy", names_from(self.server, copying))
        with contextlib.closing(SocketListener(self.server.ws_url)) as socket:
            socket.say(json.dumps({"action": "resume", "feed": "main", "cursor": self.last}))
            self.note("websocket", socket.next(PATIENCE_S).name)
        self.note("list", CLIENT.get(self.url(f"changes?since={since}")).json().get("lost"))
        waiting = CLIENT.get(self.url(f"changes?since={since}&block=2"))
        self.note("waiting list", waiting.json().get("lost"))
        strict = CLIENT.get(self.url(f"changes?since={since}&strict=true"))
        self.note("strict list", strict.status_code)
        end = Place(page, PAGE_END, self.place.seconds).encode()
        for name, after in (("pages", end), ("pages without a second", f"{0:08x}{end[8:]}")):
            self.note(name, code_of(CLIENT.get(self.url(f"pages?after={after}"))))
        self.note("durable stream", code_of(CLIENT.get(self.url(f"v1/stream/s?{self.offset}"))))
        marked = {"position": self.last, "why": "test"}
        self.note("spark", spark_from(self.server, self.last))
        self.note("consumer", code_of(CLIENT.post(self.url("consumers/c/mark"), json=marked)))


def spark_from(server: Server, start: str) -> str:
    """Return the result of a Spark stream that restarts at *start* and must not skip events."""
    source = TidingsSource({"url": server.url, "start": start, "fellOff": "fail"})
    try:
        return str(source.streamReader(source.schema()).latestOffset())
    except Gone:
        return "gone"


def names_from(server: Server, cursor: str) -> list[str]:
    """Return the events from *cursor* to `live`."""
    headers = {"accept": NDJSON, "last-event-id": cursor}
    with CLIENT.stream("GET", f"{server.url}feeds/main/ops", headers=headers) as answer:
        events = (json.loads(line)["event"] for line in answer.iter_lines() if line)
        return [*itertools.takewhile(lambda name: name != "live", events)]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json().get("error", {}) if answer.status_code >= 400 else {}
    return answer.status_code, error.get("code", "")


def relayed(relay: Server) -> dict[str, Any]:
    answer: dict[str, Any] = CLIENT.get(f"{relay.url}feeds/main/relay").json()
    return answer


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """Yield a server, its relay, and the answers that readers of the server got after a restore."""
    with Server() as server, Server("--chain-from", f"{server.url}feeds/main") as relay:
        found = Restored(server, relay)
        CLIENT.put(found.url("v1/stream/s"), headers=JSON).raise_for_status()
        for number in range(KEPT):
            found.post(f"kept-{number}")
        CLIENT.post(found.url("v1/stream/s"), headers=JSON, content=b"[1]").raise_for_status()
        CLIENT.put(found.url("consumers/c"), json={"from": "now"}).raise_for_status()
        backup = tmp_path_factory.mktemp("backup") / "feed.db"
        done = CliRunner().invoke(main, ["backup", *server.locator, str(backup)])
        assert done.exit_code == 0, done.output
        with Fold(server.url, check_every_s=0.2, on_lost=lambda lost, wait_s: None) as fold:
            lose(found)
            threading.Thread(target=lambda: [*fold], daemon=True).start()
            until(lambda: len(fold.held) == KEPT + LOST + 1)
            until(lambda: relayed(relay)["page"] >= found.place.page)
            found.relay_cursor = relayed(relay)["cursor"]
            server.kill()
            shutil.rmtree(server.data)
            server.data.mkdir()
            shutil.copy(backup, server.data / operating.FILE)
            server.start()
            found.read_everywhere()
            for number in range(NEW):
                found.post(f"new-{number}")
            found.read_everywhere()
            until(lambda: f"video/new-{NEW - 1}" in fold.held and len(fold.held) == KEPT + NEW + 1)
            found.note("fold", sorted(fold.held))
        yield found


def lose(found: Restored) -> None:
    """Post what the backup has not."""
    for number in range(LOST):
        answer = CLIENT.post(found.url("v1/stream/s"), headers=JSON, content=b"[2]")
        found.offset = f"offset={answer.raise_for_status().headers['stream-next-offset']}"
        found.last = found.post(f"lost-{number}")


TOLD = {
    "websocket": "reset",
    "list": True,
    "waiting list": True,
    "strict list": 410,
    "pages": (409, "other_log"),
    "pages without a second": (409, "other_log"),
    "durable stream": (410, "offset_gone"),
    "consumer": (400, "invalid_consumer"),
    "spark": "gone",
}


@pytest.mark.parametrize(("reader", "told"), TOLD.items())
def test_a_reader_that_saw_what_is_lost_is_told(
    restored: Restored, reader: str, told: object
) -> None:
    """P5.7: this holds even if the log has grown past its cursor."""
    assert restored.told[reader] == [told, told]


@pytest.mark.parametrize("reader", ["sse", "copy"])
def test_a_stream_begins_again(restored: Restored, reader: str) -> None:
    """P5.7: it starts with `reset` and everything; a copy in progress may have sent lost
    objects."""
    before, after = restored.told[reader]
    assert before == ["reset", *["insert"] * (KEPT + 1)]
    assert after[0] == "reset" and len(after) >= 1 + KEPT + 1 + NEW


def test_a_fold_forgets_what_is_lost(restored: Restored) -> None:
    """It has exactly the objects of the feed."""
    (held,) = restored.told["fold"]
    kept = [f"video/kept-{number}" for number in range(KEPT)]
    assert held == sorted(["durable-stream/s", *kept, *(f"video/new-{n}" for n in range(NEW))])


def test_the_status_tells_the_generation(restored: Restored) -> None:
    """P9.4: an operator sees that the feed was put back."""
    assert CLIENT.get(f"{restored.server.url}status").json()["generation"] == 2


def test_a_consumer_is_noted_to_have_been_put_back(restored: Restored) -> None:
    """P14.6: its operator finds the place, and what to do about what its store has."""
    (note,) = CLIENT.get(restored.url("consumers/c/notes")).json()["notes"]
    assert (note["what"], note["who"]) == ("restore", "restore")
    assert "mark it `copy`" in note["why"]


def test_a_relay_that_is_further_stops_and_its_readers_begin_again(restored: Restored) -> None:
    """P16.9, P5.7: its status is an error, and it does not wait until the master reaches its
    page."""
    relay = restored.relay
    stands = until(lambda: (told := relayed(relay))["status"] == "other-log" and told)
    assert "page that was lost" in stands["error"]
    since = end_of(restored.place.page)
    listed = CLIENT.get(f"{relay.url}feeds/main/changes?since={since}&strict=true").json()
    assert (listed["changes"], listed["atEnd"]) == ([], True)  # as before, until it is reset
    assert until(lambda: CLIENT.get(f"{relay.url}status").json()["relay"]) == "other-log"
    anew = {"to": "everything", "why": "its master was restored"}
    CLIENT.post(f"{relay.url}feeds/main/relay/reset", json=anew).raise_for_status()
    until(lambda: relayed(relay)["status"] == "running" and relayed(relay)["lag_pages"] == 0)
    assert names_from(relay, restored.relay_cursor)[0] == "reset"


# A master that continues without a restore, after its copy was promoted and has died.


@pytest.fixture(scope="module")
def failed_back() -> Iterator[Restored]:
    with Server() as master, Server("--chain-from", f"{master.url}feeds/main") as copy:
        found = Restored(master, copy)
        for number in range(KEPT):
            found.post(f"kept-{number}")
        CLIENT.put(found.url("v1/stream/s"), headers=JSON).raise_for_status()
        CLIENT.put(found.url("consumers/c"), json={"from": "now"}).raise_for_status()
        head = CLIENT.get(f"{master.url}status").json()["head"]
        until(lambda: relayed(copy)["page"] >= head)
        master.kill()
        promoted = Restored(copy, copy)
        CLIENT.post(promoted.url("relay/promote"), json={"why": "lost"}).raise_for_status()
        until(lambda: CLIENT.put(promoted.url("v1/stream/s"), headers=JSON).is_success)
        lose(promoted)
        copy.kill()
        found.last, found.offset = promoted.last, promoted.offset
        master.start()
        found.read_everywhere()
        for number in range(NEW):
            found.post(f"new-{number}")
        found.read_everywhere()
        yield found


@pytest.mark.parametrize("reader", [*TOLD, "sse", "copy"])
def test_the_old_master_tells_readers_of_a_promoted_copy(
    failed_back: Restored, reader: str
) -> None:
    """P5.9: the page numbers of the copy prove the loss, before and after the log has grown."""
    told = [each[0] if isinstance(each, list) else each for each in failed_back.told[reader]]
    assert told == [TOLD.get(reader, "reset")] * 2


# Copies that are noticed, and copies that are not.


async def _started(
    folder: Path, posts: int = 0, saved: Path | None = None, *, swept: bool = True
) -> int:
    """Start a host on *folder*, and post; how many ranges of pages count as lost.

    Copy the folder to *saved* while the host runs, some time before it stops; without a sweep, in
    the same minute.
    """
    async with hosted(folder / operating.FILE) as (host, app):
        await Producer(app, f"{time.monotonic_ns()}").post(posts)
        if saved is not None:
            if swept:
                await asyncio.to_thread(host.sweep)
            shutil.copytree(folder, saved, copy_function=shutil.copy2)
            await Producer(app, f"{time.monotonic_ns()}").post(posts)
            if swept:
                await asyncio.to_thread(host.sweep)
        return len(host.profiles.profile(FEED).lost)


def started(folder: Path, posts: int = 0) -> int:
    return asyncio.run(_started(folder, posts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a server that was started twice and stopped in order."""
    folder = tmp_path / "data"
    folder.mkdir()
    assert started(folder, 2) == 0
    assert started(folder, 1) == 0
    return folder


def test_a_kill_begins_no_generation(folder: Path, tmp_path: Path) -> None:
    """The files are those of the last start, even if they were moved."""
    moved = folder.rename(tmp_path / "elsewhere")
    assert started(moved, 1) == 0


def test_a_copy_that_was_made_since_the_last_start_begins_one(folder: Path, tmp_path: Path) -> None:
    """The copy was restored without the mark, as by a program that skips unchanged files."""
    saved = tmp_path / "saved"
    assert asyncio.run(_started(folder, 1, saved)) == 0
    for file in saved.glob(f"{operating.FILE}*"):
        if not file.name.endswith(recovery.SUFFIX):
            shutil.copy2(file, folder / file.name)
    assert started(folder, 1) == 1


@pytest.mark.parametrize("how", ["file", "synchronized", "damaged"])
def test_a_copy_of_the_same_minute_begins_one(folder: Path, tmp_path: Path, how: str) -> None:
    """The mark is still the one of the copy; the last page of the feed is not."""
    saved, heads = tmp_path / "saved", f"{operating.FILE}{recovery.HEADS_SUFFIX}"
    assert asyncio.run(_started(folder, 1, saved, swept=False)) == 0
    for file in folder.glob(f"{operating.FILE}-*"):
        file.unlink()
    for name in (operating.FILE, f"{operating.FILE}-wal"):
        shutil.copy2(saved / name, folder / name)
    if how == "synchronized":  # as by rsync, which skips the mark because it is unchanged
        shutil.copy2(saved / heads, folder / "part")
        (folder / "part").replace(folder / heads)
    elif how == "damaged":
        (folder / heads).write_text("")
    assert started(folder, 1) == 1
    assert started(folder) == 1


def test_data_of_a_release_without_recorded_pages_begins_none(folder: Path) -> None:
    """An upgrade is not a restore."""
    (folder / f"{operating.FILE}{recovery.HEADS_SUFFIX}").unlink()
    assert started(folder, 1) == 0


@pytest.mark.parametrize("how", ["file", "folder", "mark", "owner"])
def test_a_copy_begins_one(folder: Path, tmp_path: Path, how: str) -> None:
    """This holds for a copy of the file, a copy of the folder with all times, and a removed or
    touched mark.
    """
    saved, mark = tmp_path / "saved", f"{operating.FILE}{recovery.SUFFIX}"
    shutil.copytree(folder, saved, copy_function=shutil.copy2)
    if how == "file":
        started(folder, 1)
        shutil.copy2(saved / operating.FILE, folder / operating.FILE)
    elif how == "folder":
        folder = saved
    elif how == "mark":
        (folder / mark).unlink()
    else:
        os.chown(folder / mark, os.getuid(), os.getgid())
    assert started(folder, 1) == 1
    assert started(folder) == 1


# A data file that was lost, or put back as a copy from before the first checkpoint.


def _lose_wal(server: Server, copy: Path) -> None:
    server.kill()
    for name in ("-wal", "-shm"):
        (server.data / f"{operating.FILE}{name}").unlink()


def _put_back_copy(server: Server, copy: Path) -> None:
    """The copy is empty: all data are still in the write-ahead log."""
    shutil.copy(server.data / operating.FILE, copy)
    server.stop()
    shutil.copy(copy, server.data / operating.FILE)


def _lose_file(server: Server, copy: Path) -> None:
    server.stop()
    server.start()  # and nothing is posted
    server.stop()
    (server.data / operating.FILE).unlink()


def _lose_heads_too(server: Server, copy: Path) -> None:
    _lose_wal(server, copy)
    (server.data / f"{operating.FILE}{recovery.HEADS_SUFFIX}").unlink()


def _copy_folder(server: Server, copy: Path) -> None:
    """The copy has all files of the folder except the write-ahead log."""
    _lose_wal(server, copy)
    (server.data / operating.SOCKET).unlink()
    shutil.copytree(server.data, copy)
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data)


@pytest.mark.parametrize(
    "lose", [_lose_wal, _put_back_copy, _lose_file, _lose_heads_too, _copy_folder]
)
def test_a_lost_file_is_told_to_every_reader(
    tmp_path: Path, lose: Callable[[Server, Path], None]
) -> None:
    """P5.7: no number is assigned twice, in a feed that is configured and in any other feed."""
    with Server() as server:
        found = Restored(server, server)
        other = f"{server.url}feeds/other"
        CLIENT.put(other).raise_for_status()
        for number in range(20):
            operation = {"event": "update", "type": "video", "id": f"{number}"}
            CLIENT.post(f"{other}/ops", json=operation).raise_for_status()
        last = [found.post(f"lost-{number}") for number in range(LOST)][-1]
        lose(server, tmp_path / "copy")
        server.start()
        status = CLIENT.get(f"{server.url}status").json()
        assert (status["generation"], status["status"]) == (2, "OK")
        assert "page 0" in server.errors()
        names = [found.post(f"new-{number}") for number in range(NEW)]
        assert min(names) > last
        assert names_from(server, last) == ["reset", *["insert"] * NEW]
        since = end_of(int(last[8:18], 16))
        assert CLIENT.get(found.url(f"changes?since={since}")).json()["lost"] is True
        assert CLIENT.get(found.url(f"changes?since={since}&strict=true")).status_code == 410
        CLIENT.put(other).raise_for_status()
        assert CLIENT.get(f"{other}/status").json()["head"] > 20
        server.stop()
        server.start()
        assert CLIENT.get(f"{server.url}status").json()["generation"] == 2
