"""OpenSearch and Elasticsearch as stores, real ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines import search_server
from tests.unit.pipelines.conftest import started
from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.real_stores import RealStore
from tests.unit.pipelines.test_running import KILLS, Running, killed_at_any_time, objects_of, post
from tidings.client.errors import Unwritten
from tidings.pipelines import Message, Pipeline, Search, Source, search
from tidings.pipelines.bodies import version_of
from tidings.pipelines.messages import Busy
from tidings.pipelines.ownership import Owner


@pytest.fixture(scope="module")
def elasticsearch() -> Iterator[str]:
    """Yield the address of an Elasticsearch that is started for the tests."""
    with started(search_server.running_elasticsearch) as address:
        yield address


@pytest.fixture(params=["opensearch", "elasticsearch"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def opened(url: str, index: str) -> Search:
    sink = Search(url, index)
    sink.open("p.search")
    return sink


def documents(url: str, index: str) -> dict[str, Any]:
    httpx.post(f"{url}/{index}/_refresh", timeout=30)
    found = httpx.get(f"{url}/{index}/_search?size=1000", timeout=30).json()
    return {hit["_id"]: hit["_source"] for hit in found.get("hits", {}).get("hits", ())}


def test_objects_become_documents(url: str) -> None:
    """Objects are inserted, updated and deleted, also an unknown one; a type may be part of the
    index."""
    sink = opened(url, "made-{namespace}")
    sink.write([video("insert", "a", 1, 1), video("insert", "b", 1, 1)], 1)
    sink.write([video("update", "a", 2, 2), video("delete", "b", 3)], 1)
    sink.write([video("delete", "never", 4)], 1)
    sink.close()
    assert documents(url, "made-video") == {"video/a": {"type": "video", "id": "a", "data": 2}}


def test_what_comes_again_or_too_late_changes_nothing(url: str) -> None:
    """The position in the log is the version, for every writer."""
    sink, late = opened(url, "versions"), opened(url, "versions")
    batch = [video("insert", "a", 1, 1), video("update", "a", 2, 2), video("delete", "b", 5)]
    sink.write(batch, 1)
    late.write(batch[:1], 2)
    late.write([video("insert", "b", 4)], 2)
    sink.write(batch, 1)
    for each in (sink, late):
        each.close()
    assert {key: each["data"] for key, each in documents(url, "versions").items()} == {"video/a": 2}


def test_T14_a_document_that_is_refused_is_told_by_its_place(url: str) -> None:
    """The documents before it are written; none after it counts as written."""
    sink = opened(url, "refused")
    sink.write([video("insert", "first", 1, {"n": 1})], 1)
    batch = [video("insert", name, 2, {"n": n}) for name, n in [("a", 1), ("b", "x"), ("c", 1)]]
    with pytest.raises(Unwritten, match=r"400 (mapper|document)_parsing_exception") as raised:
        sink.write(batch, 1)
    with pytest.raises(Unwritten) as behind:
        sink.write([RESET, *batch], 1)
    sink.close()
    assert (raised.value.index, behind.value.index) == (1, 2)
    assert "video/a" in documents(url, "refused")


def test_an_index_that_takes_no_writes_blames_no_document(url: str) -> None:
    """It would refuse every message."""
    sink = opened(url, "blocked")
    sink.write([video("insert", "a", 1)], 1)
    httpx.put(f"{url}/blocked/_settings", json={"index.blocks.write": True}, timeout=30)
    with pytest.raises(Busy, match="cluster_block_exception"):
        sink.write([video("insert", "b", 1)], 1)
    sink.close()


def test_before_a_copy_the_index_is_emptied(url: str) -> None:
    """It is emptied at its place in the batch; a missing index is not an error."""
    sink = opened(url, "emptied-{namespace}")
    sink.write([RESET], 1)
    sink.write([video("insert", "old", 1), video("insert", "both", 1)], 1)
    sink.write([video("insert", "older", 2), RESET, video("insert", "both", 3)], 1)
    sink.close()
    assert set(documents(url, "emptied-video")) == {"video/both"}


@pytest.mark.parametrize("kept_s", [None, "90s"])
def test_a_new_feed_fills_the_index_of_an_earlier_one(url: str, kept_s: str | None) -> None:
    """Its log has lower positions, so the index forgets the versions of earlier documents, also of
    those that were just deleted.
    """
    index = f"reused-{kept_s}".lower()
    sink, setting = opened(url, index), f"{url}/{index}/_settings"
    old = [video("insert", name, 90, "old") for name in "abc"]
    sink.write([*old, video("delete", "c", 91)], 1)
    if kept_s:
        httpx.put(setting, json={"index.gc_deletes": kept_s}, timeout=30)
    sink.write([RESET, *(video("insert", name, 2, "new") for name in "abc")], 1)
    sink.write([video("update", "a", 3, "newer"), video("delete", "b", 4)], 1)
    sink.close()
    assert {key[-1]: each["data"] for key, each in documents(url, index).items()} == {
        "a": "newer",
        "c": "new",
    }
    kept = httpx.get(setting, timeout=30).json()[index]["settings"]["index"]
    assert kept.get("gc_deletes") == kept_s


def test_a_missing_index_that_may_not_be_created_holds_no_document(url: str) -> None:
    """Messages are not written, deletions included, until someone creates the index."""
    sink, allowed = opened(url, "absent"), {"action.auto_create_index": "false"}
    sink._unmarked.add("absent")  # as if the user may not create it
    httpx.put(f"{url}/_cluster/settings", json={"transient": allowed}, timeout=30)
    for op in ("insert", "update", "delete"):
        with pytest.raises(Busy, match="404 index_not_found_exception"):
            sink.write([video(op, "a", 1)], 1)
    httpx.put(f"{url}/absent", json={}, timeout=30)
    sink.write([RESET, video("insert", "a", 1), video("delete", "never", 1)], 1)
    httpx.put(f"{url}/_cluster/settings", json={"transient": dict.fromkeys(allowed)}, timeout=30)
    sink.close()
    assert set(documents(url, "absent")) == {"video/a"}


_REFUSED = {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "full"}}


class _Answering:
    """The part of a client with given answers to bulks and searches."""

    def __init__(self, hits: list[list[str]], results: list[dict[str, Any]]) -> None:
        self._hits, self._results, self.indices = iter(hits), results, self
        self.settings = list[Any]()

    def refresh(self, **_: Any) -> None:
        return

    def search(self, **_: Any) -> dict[str, Any]:
        found = [{"_index": "i", "_id": each, "_version": 1} for each in next(self._hits, [])]
        shards = {"successful": 1, "skipped": 0, "total": 1}
        return {"_scroll_id": "1", "hits": {"hits": found}, "_shards": shards}

    def scroll(self, **_: Any) -> dict[str, Any]:
        return {"hits": {"hits": []}, "_shards": {"successful": 1, "skipped": 0, "total": 1}}

    def clear_scroll(self, **_: Any) -> None:
        return

    def bulk(self, body: list[dict[str, Any]]) -> dict[str, Any]:
        return {"items": [{"delete": each} for each in self._results]}

    def get_mapping(self, **_: Any) -> dict[str, Any]:
        return {"i": {"mappings": {"_meta": {"tidings": Owner("").mark}}}}

    def get_settings(self, **_: Any) -> dict[str, Any]:
        return {"i": {"settings": {"index.gc_deletes": "0s"}}}

    def put_settings(self, index: str, body: dict[str, Any]) -> None:
        self.settings.append(body["index.gc_deletes"])


@pytest.mark.parametrize(
    ("messages", "hits", "results", "reason"),
    [
        ([RESET], [["a", "b"]], [{"status": 200}, _REFUSED], "not emptied: 429"),
        ([RESET], [["a", "b"]], [{"status": 200}], "1 results for 2 actions"),
        ([RESET], [["a"]] * 99, [{"status": 409, "error": {}}], "not empty after 5 attempts"),
        ([RESET, video("delete", "a", 1)], [], [_REFUSED], "429"),
        ([video("delete", "a", 1)], [], [_REFUSED], "429"),
        ([video("delete", "a", 1)], [], [{"status": 404, "error": "no such index"}], "404"),
        ([video("insert", "a", 1)], [], [{"status": 404}], "404"),
        ([video("insert", "a", 1), video("insert", "b", 1)], [], [{"status": 201}], "1 results"),
        ([video("insert", "a", 1)], [], [], "0 results for 1 actions"),
        ([video("insert", "a", 1)], [], [{"status": 503, "error": "away"}], "503"),
    ],
)
def test_an_action_that_was_not_executed_is_not_written(
    messages: list[Message],
    hits: list[list[str]],
    results: list[dict[str, Any]],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer for each is read, also while the index is emptied; an answer may be missing."""
    monkeypatch.setattr(search, "FORGET_S", 0)
    sink = Search("http://host", "i")
    sink._client = _Answering(hits, results)  # type: ignore[assignment]
    with pytest.raises(Busy, match=reason):
        sink.write(messages, 1)


def test_what_is_gone_already_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion finds nothing, or a later version is there, as after a crash that was not
    acknowledged; a setting that a crash left over is removed.
    """
    monkeypatch.setattr(search, "FORGET_S", 0)
    sink = Search("http://host", "i")
    results = [{"status": 404, "result": "not_found"}, {"status": 409, "error": {}}]
    sink._client = client = _Answering([], results)  # type: ignore[assignment]
    sink.write([RESET, video("delete", "a", 1), video("insert", "b", 1)], 1)
    assert client.settings == ["0s", None]


def test_an_index_follows_the_feed(url: str, pipe: Pipe) -> None:
    """First every object, then what happens to them."""
    post(pipe, ("insert", "a"), ("insert", "b"), data={"title": "one"})
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.save("search", Search(url, pipe.feed))

    def equal() -> bool:
        wanted = {f"video/{name}": each for name, each in objects_of(pipe).items()}
        return documents(url, pipe.feed) == wanted

    with Running(pipeline) as running:
        until(equal, within_s=60)
        post(pipe, ("delete", "a"), ("insert", "c"), ("update", "b"), data={"title": "new"})
        until(lambda: equal() and "video/c" in documents(url, pipe.feed), within_s=60)
    assert running.well is True


@pytest.mark.timeout(60 * (KILLS + 10))
def test_killed_at_any_time_an_index_ends_equal_to_the_state(
    opensearch: str, elasticsearch: str, pipe: Pipe, tmp_path: Path
) -> None:
    """This is tested with both products at once."""

    def index(name: str, url: str) -> RealStore:
        return RealStore(name, f"Search({url!r}, {pipe.feed!r})", lambda: found(url, pipe.feed))

    def found(url: str, index: str) -> dict[str, Any]:
        return {key.partition("/")[2]: each for key, each in documents(url, index).items()}

    kept = [index("opensearch", opensearch), index("elasticsearch", elasticsearch)]
    killed_at_any_time(pipe, kept, tmp_path / "pipeline.py")


def test_the_version_grows_with_the_log() -> None:
    """A copied object has the version of the page after which the log continues."""
    ids = ["69000000" + "0000000001" + "000000", "69000001" + "0000000001" + "000005"]
    copied, behind = "00000000" + "0000000001" + "80003f", "69000000" + "0000000002" + "000000"
    versions = [version_of(each) for each in (*ids, copied, behind)]
    assert versions == sorted(set(versions))
    assert version_of("f" * 24) < 2**63


def test_a_key_of_an_api() -> None:
    """It is sent with each request, first when the store is opened."""
    told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        auth = {"Authorization": "ApiKey a2V5"}
        sink = Search(f"http://127.0.0.1:{server.server_port}", "kept", auth=lambda *_: auth)
        sink.open("p.search")
        answering.join()
    sink.close()
    assert told == [("/kept/_refresh?ignore_unavailable=true", "ApiKey a2V5")]
