"""erase: an object is erased from DynamoDB and S3, after a wake-up by `state` or by the sweep."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from functions.erase.handler import handle as erase
from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, archive_on_s3, become, event, lines_of, log_here, restart
from tidings.aws import clients
from tidings.aws.config.deployment import TABLES
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key
from tidings.core.consumers.consumer import Change, Consumer, Failure, Parked
from tidings.core.erasure.entries import Entry
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.model.cursors import Place
from tidings.core.model.filters import NOTHING, Filter

MARKER = "the-secret"
OBJECT = "x-secret-id"
ENTRY = Entry("video", OBJECT, "ann", "a test", as_parent=True)
WAKE = {"ring": "main"}
AWAKE = ("tidings-dev-erase", WAKE)
DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def post(id_: str, parents: list[str], text: str = "") -> None:
    operation = {"event": "update", "type": "video", "id": id_, "parents": parents}
    body = json.dumps({**operation, "data": {"text": text}})
    assert ingest(event("http_post", body=body), None)["statusCode"] == 204


def follow_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for follower in ("state", "push", "archive"):
        become(follower, monkeypatch)
        follow(WAKE, None)


def use(monkeypatch: pytest.MonkeyPatch, seconds: str = "0") -> None:
    """Leave data of the object in each store, and follow."""
    archive_on_s3(monkeypatch, "s3://kept")
    monkeypatch.setenv("TIDINGS_ERASURE_SECONDS", seconds)
    restart()
    assert stage().profiles.save("main", replace(stage().profiles.profile("main"), leave=True))
    for parent in ("user/ann", "user/bob"):
        post(OBJECT, [parent], MARKER)
        follow_all(monkeypatch)
    post("y", [f"video/{OBJECT}"])
    parked = Parked(Place(1, 0, 0).encode(), stage().stores.log.read("main", 0)[0].text, MARKER, 1)
    failure = Failure(parked.id, MARKER, 1)
    change = Change(Consumer("main", "index", parked=1, failure=failure), park=parked)
    assert stage().stores.consumers.write("main", "index", 0, change)
    bound = Filter(ids=frozenset({OBJECT}))
    key = Key("ended", "", frozenset({Role.READ}), bound, label=MARKER, revoked_ms=now_ms())
    assert stage().stores.keys.save("main", key)
    follow_all(monkeypatch)


def requested(monkeypatch: pytest.MonkeyPatch, entry: Entry = ENTRY) -> Erasure:
    service = stage().erasures
    assert service is not None
    found = service.request("main", entry)
    follow_all(monkeypatch)
    return found


def record(erasure: Erasure) -> Erasure:
    found = stage().stores.erasures.erasure("main", erasure.id)
    assert found is not None
    return found


def later(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    at = now_ms() + ms
    monkeypatch.setattr("tidings.aws.effects.now_ms", lambda: at)
    restart()


def end_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job when the tombstone has expired, and when the postponed end has come."""
    for days in (1, 3):
        later(monkeypatch, stage().settings.tombstone_ms + days * DAY_MS)
        erase(WAKE, None)


def everything() -> str:
    """Return all that the tables and the bucket have, unpacked."""
    items = [
        item
        for table in TABLES
        for item in clients.dynamodb().scan(TableName=table.name, ConsistentRead=True)["Items"]
    ]
    found = clients.objects().list_objects_v2(Bucket="kept").get("Contents", ())
    bodies = (
        clients.objects().get_object(Bucket="kept", Key=each["Key"])["Body"].read()
        for each in found
    )
    return "\n".join([repr(items), *map(_unpacked, bodies)])


def _unpacked(body: bytes) -> str:
    return (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode()


def erasing(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Any]) -> None:
    """Erase an object, and its erasure entry later."""
    use(monkeypatch)
    found = requested(monkeypatch, replace(ENTRY, as_parent=False))
    start_recording()
    erase(WAKE, None)
    assert record(found).phase is Phase.KEPT
    end_keeping(monkeypatch)
    assert record(found).phase is Phase.DONE
    lose(found)
    erase({**WAKE, "restored": True}, None)


def lose(found: Erasure) -> None:
    """Leave *found* in the ledger with the id of an entry that the log does not have."""
    ledger = stage().stores.erasure_ledger
    assert ledger is not None
    ledger.add("main", replace(found, id=Place(9000, 0, 1).encode(), object_id=OBJECT))


def erasing_a_parent(monkeypatch: pytest.MonkeyPatch, start_recording: Callable[[], Any]) -> None:
    """Correct another object, and wake the followers of its page."""
    use(monkeypatch)
    found = requested(monkeypatch)
    start_recording()
    erase(WAKE, None)
    assert record(found).phase is Phase.WAITING and record(found).corrected == 1


def test_nothing_has_the_object_in_the_end(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its data at once, nor its id when the tombstone has expired."""
    use(monkeypatch)
    assert MARKER in everything()
    erasing_it = requested(monkeypatch)
    for _ in range(2):
        erase(WAKE, None)
        follow_all(monkeypatch)
    assert record(erasing_it).phase is Phase.KEPT
    assert MARKER not in everything()
    assert record(erasing_it).texts == 2
    assert [key.bound for key in stage().stores.keys.keys("main")] == [NOTHING]
    assert [page.number for page in stage().stores.log.read("main", 0)] == [1, 2, 3, 4, 5]

    end_keeping(monkeypatch)
    assert record(erasing_it).phase is Phase.DONE
    assert OBJECT not in everything()


def test_the_archive_waits_for_the_longest_run(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 15 minutes, or as the setting says: a run may still have old pages."""
    use(monkeypatch, "")
    found = requested(monkeypatch, replace(ENTRY, as_parent=False))
    erase(WAKE, None)
    assert stage().erasure_settle_ms == limits.ERASE_SETTLE_S * 1000
    assert record(found).phase is Phase.PARKED
    assert MARKER not in repr(stage().stores.log.read("main", 0)) and MARKER in everything()
    later(monkeypatch, limits.ERASE_SETTLE_S * 1000 + 1000)
    erase(WAKE, None)
    assert record(found).phase is Phase.KEPT and MARKER not in everything()


def test_state_wakes_it_and_the_sweep_does_while_it_waits(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep wakes it for a feed with work, and for no other."""
    use(monkeypatch)
    sweep(event("schedule"), None)
    assert AWAKE not in cloud.invoked
    found = requested(monkeypatch)
    assert AWAKE in cloud.invoked

    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert AWAKE in cloud.invoked
    for _ in range(2):
        erase(WAKE, None)
        follow_all(monkeypatch)
    assert record(found).phase is Phase.KEPT
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert AWAKE not in cloud.invoked

    later(monkeypatch, stage().settings.tombstone_ms + DAY_MS)
    sweep(event("schedule"), None)
    assert AWAKE in cloud.invoked


def test_a_sweep_of_a_feed_without_erasures_reads_no_records(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of `state`, which it reads anyway, says whether the feed has any."""
    post("x", [])
    asked: list[str] = []

    def note(request: Any, **_: object) -> None:
        asked.append(str(request.body))

    clients.dynamodb().meta.events.register_first("before-send.dynamodb", note)
    sweep(event("schedule"), None)
    assert asked and "erasure#main" not in "".join(asked)


def test_what_stops_it_is_logged(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep wakes it again."""
    use(monkeypatch)
    found = requested(monkeypatch, replace(ENTRY, as_parent=False))
    restart()
    monkeypatch.setattr(stage().stores.erasures, "save", lambda feed, erasure: False)
    log_here()
    capsys.readouterr()
    erase(WAKE, None)
    (said,) = (each for each in lines_of(capsys) if each["message"] == "erasure stopped")
    assert said["feed"] == "main" and found.id in said["reason"]


def test_deletions_are_forgotten(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an hour, the sweep wakes the job for a feed that forgets; the job requests erasures."""
    use(monkeypatch)
    body = json.dumps({"event": "delete", "type": "video", "id": OBJECT})
    assert ingest(event("http_post", body=body), None)["statusCode"] == 204
    follow_all(monkeypatch)
    profile = stage().profiles.profile("main")
    assert stage().profiles.save("main", replace(profile, forget_after_days=1))
    later(monkeypatch, DAY_MS + HOUR_MS - (now_ms() + DAY_MS) % HOUR_MS)
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert AWAKE in cloud.invoked
    for _ in range(2):
        erase(WAKE, None)
        follow_all(monkeypatch)
    (found,) = stage().stores.erasures.erasures("main")
    assert (found.object_id, found.reason) == (OBJECT, "forget-after")
    assert MARKER not in everything()

    later(monkeypatch, limits.SWEEP_EVERY_MS)
    cloud.around.asked.clear()
    sweep(event("schedule"), None)
    assert AWAKE not in cloud.invoked


def test_an_erasure_that_a_restored_log_lacks_is_requested_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger next to the archive has it; an operator invokes the function once."""
    use(monkeypatch)
    post("z", [])
    follow_all(monkeypatch)
    lose(Erasure(Place(1, 0, 1).encode(), "video", OBJECT, "ann", "why", 1))
    for restored in (True, True, False):
        erase({**WAKE, "restored": restored}, None)
        follow_all(monkeypatch)
    (found,) = stage().stores.erasures.erasures("main")
    assert (found.object_id, found.by, found.reason) == (OBJECT, "ann", "why")
    assert found.phase is Phase.KEPT and MARKER not in everything()
