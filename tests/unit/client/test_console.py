"""The web page `/console` in a real browser, against a real server."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection

from tests.unit.client import chromium
from tests.unit.client.fake_feed import CONSOLE, Running, event_id

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser: ClientConnection) -> Iterator[chromium.Page]:
    """Yield a fresh tab; in every test its console must have no error."""
    with chromium.tab(browser) as found:
        yield found
        assert found.errors == []


def _file(number: int, event: str = "insert", folder: str = "src") -> dict[str, object]:
    return {"event": event, "type": "file", "id": f"{folder}/f{number}", "parents": ["repo/r"]}


def _text(page: chromium.Page, selector: str) -> str:
    return str(page.js(f"document.querySelector({selector!r}).textContent"))


def _live(page: chromium.Page) -> None:
    page.until("document.querySelector('#badge')?.textContent === 'live'")


def _rows(page: chromium.Page, count: int) -> list[str]:
    """Return the objects in the list, newest first, once there are *count*."""
    page.until(f"document.querySelectorAll('.object').length === {count}")
    found = page.js("[...document.querySelectorAll('.object')].map((row) => row.textContent)")
    return list(found)


def test_an_empty_feed_says_how_to_post(server: Running, page: chromium.Page) -> None:
    """The page shows the next step to a new user."""
    page.open(f"{server.url}/console/?from=now")
    _live(page)

    assert "tidings post insert video x32" in _text(page, "#empty")
    assert server.url in _text(page, "#how")
    assert page.js("document.querySelector('#empty').offsetHeight > 0")
    server.append(_file(1))
    assert _rows(page, 1) == ["file/src/f1"]
    assert page.js("document.querySelector('#empty').offsetHeight === 0")


def test_a_copy_then_the_log(server: Running, page: chromium.Page) -> None:
    """Counters and the fold follow inserts and deletes; the cursor is shown."""
    server.append(*[_file(number) for number in range(5)])
    page.open(f"{server.url}/console/")
    _live(page)
    page.until("document.querySelector('#objects').textContent === '5'")
    assert _text(page, "#objects-title") == "Objects"

    server.append(_file(0, "delete"), _file(1, "update"), _file(9, folder="docs"))
    page.until("document.querySelector('#total').textContent === '8'")
    assert _rows(page, 8)[:3] == ["file/docs/f9", "file/src/f1", "file/src/f0"]
    assert _text(page, "#objects") == "5"
    assert _text(page, "#cursor") == event_id(2, 2)


def test_8_9_a_packed_message_is_unpacked_up_to_a_bound(
    server: Running, page: chromium.Page
) -> None:
    """P8.9: a gzip message equals the plain one; a bomb is refused, and so is anything else."""
    page.open(f"{server.url}/console/?from=now")
    _live(page)
    plain = json.dumps({"events": [], "cursor": "x" * 100_000})
    bomb = b"{" + b" " * 100_000_000
    said = [plain, _packed(plain.encode()), _packed(bomb), _packed(b"{}")[:-8], "!", "", "e30="]
    found = page.js(
        "import('/console/client/socket.js').then(({ textOf }) => Promise.all("
        f"{json.dumps(said)}.map((text) => textOf(text).catch(() => null))))"
    )

    assert found == [plain, plain, None, None, None, None, None]


def test_a_connection_that_joins_is_followed(server: Running, page: chromium.Page) -> None:
    """P8.7: a connection that the follower has not added yet does not reconnect."""
    server.feed.faults.pongs = ["catching-up", "joining", "live"]
    page.open(f"{server.url}/console/?from=now")
    _live(page)

    assert [each["action"] for each in server.feed.messages] == ["subscribe", *["ping"] * 3]


# A socket with a server that answers at once, in a page with a clock that is 6,000 times as fast.
_FAST = """Promise.all([import('/console/client/reader.js'), import('/console/client/socket.js')])
.then(([{ Reader }, { overSocket }]) => new Promise((done) => {
  const later = window.setTimeout.bind(window);
  window.setTimeout = (act, ms) => later(act, ms / 6000);
  const said = [];
  window.WebSocket = class {
    constructor() { queueMicrotask(() => this.onopen()); }
    close() {}
    send(text) {
      const { action } = JSON.parse(text);
      said.push(action);
      const answer = ANSWERS[action];
      if (answer) queueMicrotask(() => this.onmessage({ data: JSON.stringify(answer) }));
      if (said.filter((each) => each === "ping").length === 2) { feed.stop(); done(said); }
    }
  };
  const feed = new Reader(overSocket("ws://127.0.0.1:1", { feed: "main" }), "now", {});
  feed.start();
}))"""
_UNKNOWN = {"error": {"code": "invalid_message", "field": "action", "value": "keepalive"}}


@pytest.mark.parametrize(
    ("answer", "between"), [(None, "(keepalive )+"), (_UNKNOWN, "keepalive ")], ids=["new", "old"]
)
def test_8_7_an_idle_page_says_keep_alives_and_asks_by_and_by(
    server: Running, page: chromium.Page, answer: object, between: str
) -> None:
    """P8.7: a ping after an hour of silence, or where the server knows no keep-alive."""
    answers = {
        "subscribe": {"reply": "subscribed", "cursor": event_id(1)},
        "ping": {"reply": "pong", "state": "live"},
        "keepalive": answer,
    }
    page.open(f"{server.url}/console/style.css")
    said = page.js(_FAST.replace("ANSWERS", json.dumps(answers)))

    assert re.fullmatch(f"subscribe ping {between}ping", " ".join(said)), said


def _packed(plain: bytes) -> str:
    return b64encode(gzip.compress(plain)).decode()


def test_the_plug(server: Running, page: chromium.Page) -> None:
    """P2.3: after a disconnect and a reconnect the page has every event once, and shows how many it
    missed.
    """
    server.append(_file(0))
    server.feed.faults.repeat = 2
    page.open(f"{server.url}/console/?from=now")
    _live(page)
    server.append(_file(1))
    _rows(page, 1)
    page.js("document.querySelector('#plug').click()")
    page.until("document.querySelector('#badge').textContent.startsWith('disconnected')")
    for number in range(2, 9):
        server.append(_file(number))
    page.js("document.querySelector('#plug').click()")
    page.until("document.querySelector('#notice').textContent.startsWith('resumed')")

    expected = f"resumed from cursor {event_id(2)}, 7 events missed and caught up"
    assert _text(page, "#notice") == expected
    assert _rows(page, 8) == [f"file/src/f{number}" for number in range(8, 0, -1)]


def test_a_cut_is_mended_without_anybody(server: Running, page: chromium.Page) -> None:
    """The page comes back by itself and resumes."""
    page.open(f"{server.url}/console/")
    _live(page)
    server.append(_file(1))
    _rows(page, 1)
    server.cut()
    page.until("document.querySelector('#badge').textContent.includes('reconnecting')")
    server.append(_file(2))

    assert _rows(page, 2) == ["file/src/f2", "file/src/f1"]
    _live(page)


def test_a_reload_resumes(server: Running, page: chromium.Page) -> None:
    """The cursor outlives a reload; the filters are in the address."""
    page.open(f"{server.url}/console/?types=file&from=now")
    _live(page)
    server.append(_file(1))
    _rows(page, 1)
    page.js("document.querySelector('#types').value = 'file,other'")
    page.js("document.querySelector('#filters').requestSubmit()")
    page.until("location.search.includes('types=file%2Cother')")
    _live(page)
    server.append(_file(2))
    _rows(page, 1)
    address = page.js("location.href")
    page.open("about:blank")
    server.append(_file(3), _file(4))
    page.open(str(address))

    assert _rows(page, 2) == ["file/src/f4", "file/src/f3"]
    assert server.feed.messages[-2] == {
        "action": "resume",
        "feed": "main",
        "cursor": event_id(2),
        "types": ["file", "other"],
        "encoding": "gzip",
    }


def test_another_view_and_back_resumes(server: Running, page: chromium.Page) -> None:
    """The list and the counters are kept, and the events in between are read."""
    server.append(_file(1), _file(2))
    page.open(f"{server.url}/console/?from=0")
    _live(page)
    _rows(page, 2)
    page.js("document.querySelector('[data-view=settings]').click()")
    page.until("!!document.querySelector('#keys')")
    assert page.js("location.hash + document.title") == "#/settingsSettings · main · Tidings"
    server.append(_file(3))
    page.js("history.back()")

    assert _rows(page, 3) == ["file/src/f3", "file/src/f2", "file/src/f1"]
    assert _text(page, "#total") == "3"
    assert page.js("document.querySelector('[aria-current=page]').textContent") == "Events"


def test_filters_and_a_fresh_start(server: Running, page: chromium.Page) -> None:
    """A new choice clears the list."""
    server.append(_file(1), {"event": "insert", "type": "video", "id": "x", "parents": ["c"]})
    page.open(f"{server.url}/console/")
    _rows(page, 2)
    page.js(
        "document.querySelector('#types').value = ' video ,';"
        "document.querySelector('#parents').value = 'c';"
        "document.querySelector('#filters [type=submit]').click()"
    )

    assert _rows(page, 1) == ["video/x"]
    page.until("document.querySelector('#total').textContent === '1'")


def test_a_pause_holds_the_list_only(server: Running, page: chromium.Page) -> None:
    """Counters continue; a resume shows the events that were held."""
    page.open(f"{server.url}/console/")
    _live(page)
    page.js("document.querySelector('#pause').click()")
    server.append(_file(1), _file(2))
    page.until("document.querySelector('#pause').textContent === 'Continue (2 new)'")
    assert _rows(page, 0) == []
    page.js("document.querySelector('#pause').click()")

    assert len(_rows(page, 2)) == 2
    search = "(text) => { const it = document.querySelector('#search-text'); it.value = text;"
    page.js(f"({search} it.dispatchEvent(new Event('input')); }})('F2')")
    assert _rows(page, 1) == ["file/src/f2"]
    page.until("document.querySelector('#found').textContent === '1 of the newest 2'")


def test_a_busy_feed_stays_bounded(server: Running, page: chromium.Page) -> None:
    """With any number of events the list has 300 rows, and every event is counted."""
    page.open(f"{server.url}/console/?from=now")
    _live(page)
    for page_number in range(20):
        server.append(*[_file(page_number * 200 + number) for number in range(200)])
    page.until("document.querySelector('#total').textContent === (4000).toLocaleString()")

    assert _rows(page, 300)[0] == "file/src/f3999"


def test_folders_open(server: Running, page: chromium.Page) -> None:
    """The picture and its table lead into a folder and back."""
    for folder in ("src/core", "src/edge", "docs"):
        server.append(_file(1, folder=folder), _file(2, folder=folder))
    page.open(f"{server.url}/console/#/overview")
    page.until("document.querySelector('.bar .count')?.textContent === '6'")
    page.js("document.querySelector('#picture summary').click()")
    page.until("document.querySelectorAll('#groups tr').length === 2")
    page.js("document.querySelector('#groups button').click()")
    page.until("document.querySelector('#groups').textContent.includes('core/')")

    assert _text(page, "#crumbs") == "everythingfilesrc/"
    page.js("document.querySelector('#crumbs button').click()")
    page.until("document.querySelector('#groups').textContent.includes('docs/')")


def test_less_motion_is_no_fading(server: Running, page: chromium.Page) -> None:
    """A changed area has one strength until it stops, if the person prefers less motion."""
    page.open(f"{server.url}/console/style.css")
    calm, fading = page.js(
        "import('/console/charts.js').then(({ glow }) =>"
        " [true, false].map((calm) => [1500, 700, 1, 0].map((left) => glow(left, calm))))"
    )

    assert calm == [0.5, 0.5, 0.5, 0]
    assert fading == sorted(fading, reverse=True) and len(set(fading)) == 4


def test_hostile_text_stays_text(server: Running, page: chromium.Page) -> None:
    """Names made of markup, controls and marks of direction are shown, never run."""
    bad = "<img src=x onerror=alert(1)>\u202e\x00"
    server.append(
        {
            "event": "insert",
            "type": bad,
            "id": f"{bad}/{bad}",
            "parents": [bad],
            "data": {"message": bad},
        },
        {"event": "insert", "type": "__proto__", "id": "constructor", "parents": []},
    )
    page.open(f"{server.url}/console/")
    rows = _rows(page, 2)

    assert "<img src=x onerror=alert(1)>\\u202e\\u0000/" in rows[1]
    assert rows[0] == "__proto__/constructor"
    assert page.js("document.querySelectorAll('#events img').length") == 0


def test_a_refusal_is_told(server: Running, page: chromium.Page) -> None:
    """An unknown feed: one sentence, and no more attempts."""
    page.open(f"{server.url}/console/?feed=nowhere")
    page.until("document.querySelector('#trouble').textContent.includes('no such feed here')")

    assert _text(page, "#badge") == "refused"


def test_a_feed_with_a_password(server: Running, page: chromium.Page) -> None:
    """The page asks for it, sends it on every connection, and keeps it for this tab."""
    server.feed.password = "s3cret"
    server.append(_file(1))
    page.open(f"{server.url}/console/")
    page.until("!!document.querySelector('#dialog')?.open")
    assert _text(page, "#dialog-says") == "Enter the password of the feed main, or a key."
    assert page.js("document.querySelector('#trouble').hidden")

    page.js("document.querySelector('#dialog-secret').value = 's3cret'")
    page.js("document.querySelector('#dialog-do').click()")
    _live(page)
    assert _rows(page, 1) == ["file/src/f1"]
    server.cut()
    server.append(_file(2))
    assert _rows(page, 2) == ["file/src/f2", "file/src/f1"]
    kept = "JSON.stringify(localStorage) + location.href + document.documentElement.outerHTML"
    assert "s3cret" not in str(page.js(kept))
    page.call("Page.reload")
    page.until("!window.performance.timing.loadEventEnd || document.readyState === 'complete'")
    _live(page)


def test_what_the_feed_says_of_itself(server: Running, page: chromium.Page) -> None:
    """It shows the lag of the followers and the number of clients, and polls while the page is
    visible.
    """
    server.append(_file(1))
    server.append(_file(2))
    page.open(f"{server.url}/console/")
    _live(page)

    shown = "document.querySelector('#status').textContent"
    page.until(f"{shown} === '1 client, 2 pages behind'")
    server.append(_file(3))
    page.until(f"{shown}.includes('3 pages')")
    failing = "async (url) => { window.asked = url; throw Error(); }"
    page.js(f"window.fetch = {failing}, document.dispatchEvent(new Event('visibilitychange'))")
    page.until("window.asked?.endsWith('/status') && !document.querySelector('#status').innerText")
    assert _text(page, "#badge") == "live"


def test_it_fits_a_telephone(server: Running, page: chromium.Page) -> None:
    """Nothing is wider than a narrow screen."""
    server.append(*[_file(number, folder="a/" + "long" * 20) for number in range(5)])
    page.open(f"{server.url}/console/", width=360, height=700)
    _rows(page, 5)

    assert page.js("document.documentElement.scrollWidth") <= 360


def test_no_file_needs_another_host() -> None:
    """No external resource, no markup made from text."""
    for file in Path(CONSOLE).iterdir():
        text = file.read_text()
        assert "innerHTML" not in text
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
