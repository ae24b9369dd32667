"""The reading views of the console: events, objects with their history, charts, a lost host."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.hosts import make_key, raise_floor
from tests.unit.client import chromium, pictures
from tidings.server import operating
from tidings.server.running import Server

pytestmark = pytest.mark.browser

GUIDE = Path(__file__).parents[3] / "docs/guides/SERVER.md"
HOSTILE = "<img src=x onerror=alert(1)>\u202e"
# Keep what the page copies, because a browser without a window has no clipboard.
_CLIPBOARD = """
const value = { writeText: async (text) => (window.copied = text) };
Object.defineProperty(navigator, "clipboard", { value });
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("--feeds", "main,long", data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def page(browser: ClientConnection) -> Iterator[chromium.Page]:
    with chromium.tab(browser) as found:
        yield found


def _post(host: Server, *operations: dict[str, Any], feed: str = "main") -> list[str]:
    """Post each operation alone, so that each is a page; return their ids."""
    url, headers = f"{host.url}feeds/{feed}/ops", {"prefer": "return=representation"}
    ids = []
    for operation in operations:
        answer = httpx.post(url, json=operation, headers=headers).raise_for_status()
        ids += answer.json()["ids"]
    return ids


def _op(id_: str, event: str = "insert", type_: str = "file", **more: Any) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": ["repo/r"], **more}


def _sent(host: Server, type_: str, count: int) -> list[dict[str, Any]]:
    """Return the first *count* events of *type_*, as a stream sends them as CloudEvents."""
    headers = {"accept": "application/x-ndjson", "last-event-id": "0000000000000000007fffff"}
    query = {"format": "cloudevents", "types": type_}
    url = f"{host.url}feeds/main/ops"
    with httpx.stream("GET", url, params=query, headers=headers) as answer:
        lines = (line for line in answer.iter_lines() if line)
        return [json.loads(next(lines)) for _ in range(count)]


def _text(page: chromium.Page, selector: str) -> str:
    return str(page.js(f"document.querySelector({selector!r})?.textContent ?? ''"))


def _click(page: chromium.Page, text: str, inside: str = "body") -> None:
    """Click the button with *text*."""
    found = f"[...document.querySelectorAll('{inside} button')].find(b => b.innerText === {text!r})"
    page.until(f"!!{found}")
    page.js(f"{found}.click()")


def _rows(page: chromium.Page, body: str, count: int) -> list[list[str]]:
    page.until(f"document.querySelector('#{body}')?.children.length === {count}")
    cells = "[...row.children].map((cell) => cell.textContent)"
    return list(page.js(f"[...document.querySelector('#{body}').children].map((row) => {cells})"))


def test_an_event_opens_by_keyboard(host: Server, page: chromium.Page) -> None:
    """With its data, its fields and a way to copy them; Escape returns to the list."""
    more: dict[str, Any] = {"tags": ["spring", "sale"], "changed": ["price"]}
    more |= {"type_": "key", "data": {"n": 1, "x": HOSTILE}}
    ids = _post(host, *[_op(f"k{n}", **more) for n in range(3)])
    page.open(f"{host.url}console/?types=key&from=0000000000000000007fffff")
    page.js(_CLIPBOARD)
    page.until("document.querySelectorAll('.object').length === 3")
    page.js("document.querySelector('.object').focus()")
    page.press("ArrowDown")
    page.press("Enter")
    page.until("document.querySelector('#inspector')?.open")

    assert _text(page, "#inspector-title") == "insert key/k1"
    assert json.loads(_text(page, "#inspected"))["n"] == 1
    assert "<img" in _text(page, "#inspected") and "\\u202e" in _text(page, "#inspected")
    facts = _text(page, "#inspector .facts")
    for name, value in (("Parents", "repo/r"), ("Tags", "spring\nsale"), ("Changed", "price")):
        assert name + value in facts
    assert "Timestamp2" in facts and "Committed2" in facts
    for name, value in (("the id", "k1"), ("the cursor", ids[1])):
        page.js(f"document.querySelector('[aria-label=\"Copy {name}\"]').click()")
        page.until(f"window.copied === {value!r}")
    _click(page, "JSON", "#inspector")
    page.js("document.querySelector('[aria-label=\"Copy the JSON\"]').click()")
    page.until("window.copied.includes('insert')")
    assert json.loads(page.js("window.copied"))["id"] == ids[1]
    page.press("Escape")
    page.until("!document.querySelector('#inspector')")
    assert page.js("document.activeElement.textContent") == "key/k1"


def test_6_11_the_cloudevents_are_those_of_a_stream(host: Server, page: chromium.Page) -> None:
    """All attributes, for each operation."""
    changes = [_op("c", event, "cloud", data={"n": 1}) for event in ("insert", "update", "delete")]
    _post(host, *changes)
    page.open(f"{host.url}console/?types=cloud&from=0000000000000000007fffff")
    page.until("document.querySelectorAll('.object').length === 3")
    shown = []
    for at in (2, 1, 0):
        page.js(f"document.querySelectorAll('.object')[{at}].click()")
        _click(page, "CloudEvents", "#inspector")
        shown.append(json.loads(_text(page, "#inspected")))
        _click(page, "Close", "#inspector")
        page.until("!document.querySelector('#inspector')")

    assert shown == _sent(host, "cloud", 3)


def test_an_event_leads_to_its_object_and_to_its_place(host: Server, page: chromium.Page) -> None:
    """The address names them, so that they can be shared."""
    ids = _post(host, *[_op(f"p{n}", type_="place") for n in range(3)])
    page.open(f"{host.url}console/?types=place&from=0000000000000000007fffff")
    page.until("document.querySelectorAll('.object').length === 3")
    page.js("document.querySelectorAll('.object')[2].click()")
    _click(page, "Object and its history", "#inspector")
    page.until("location.hash === '#/objects'")
    assert page.js("location.search") == "?feed=main&type=place&id=p0"
    _click(page, "insert")
    _click(page, "Read from here", "#inspector")
    page.until("location.hash === '#/events'")
    assert page.js("location.search") == f"?feed=main&from={ids[0]}"
    page.until("document.querySelectorAll('.object').length === 2")
    assert page.js("document.querySelector('#from-value').value") == ids[0]


def test_an_object_and_its_history(host: Server, page: chromium.Page) -> None:
    """Its operations and no others, and the ones that arrive while it is shown."""
    first = _op("o*", data={"n": 1})
    ids = _post(host, first, _op("o*/other"), _op("o*", "update", data={"n": 2}))
    page.open(f"{host.url}console/#/objects")
    page.js("document.querySelector('#object-type').value = 'file'")
    page.js("document.querySelector('#object-id').value = 'o*'")
    page.js("document.querySelector('#search').requestSubmit()")
    rows = _rows(page, "history", 2)

    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("update", "repo/r", ids[2]),
        ("insert", "repo/r", ids[0]),
    ]
    page.until("document.querySelector('#reach').textContent.startsWith('2 found')")
    page.until("document.querySelector('#object-state').textContent.includes('\"n\": 2')")
    _post(host, _op("o*", "delete"))
    assert _rows(page, "history", 3)[0][0] == "delete"
    page.until("!document.querySelector('#no-object').hidden")
    assert page.js("document.querySelector('#object-state').hidden")


def test_the_objects_of_a_type(host: Server, page: chromium.Page) -> None:
    """A list that leads to each; a type without objects says so."""
    _post(host, _op("l1", type_="list"), _op(HOSTILE, type_="list"), _op("gone", type_="list"))
    _post(host, _op("gone", "delete", type_="list"))
    page.open(f"{host.url}console/?type=list#/objects")
    rows = _rows(page, "objects-found", 2)
    assert sorted(row[0] for row in rows)[1] == "list/l1"
    assert page.js("document.images.length") == 1
    _click(page, "list/l1")
    _rows(page, "history", 1)
    page.open(f"{host.url}console/?type=nothing#/objects")
    page.until("!document.querySelector('#no-objects').hidden")


def _trim(host: Server, floor: int) -> None:
    """Remove the pages below *floor*, like retention without an archive."""
    raise_floor(host, "main", floor)
    host.stop()
    with closing(sqlite3.connect(host.data / operating.FILE)) as sql, sql:
        sql.execute("DELETE FROM pages WHERE page < ?", (floor,))
    host.start()


def test_a_history_says_where_the_log_ends(browser: ClientConnection, tmp_path: Path) -> None:
    """Before it there is only the state, which is marked as such."""
    with Server(data=tmp_path / "data") as host, chromium.tab(browser) as page:
        _post(host, _op("a", data={"n": 1}), _op("a", "update", data={"n": 2}), _op("b"))
        _trim(host, 3)
        page.open(f"{host.url}console/?type=file&id=a#/objects")
        ((operation, _, _, _),) = _rows(page, "history", 1)
        assert operation == "state"
        page.until("document.querySelector('#reach').textContent.includes('no longer')")


def test_reading_begins_at_a_cursor_or_a_time(host: Server, page: chromium.Page) -> None:
    """The form checks a cursor, and writes the choice into the address."""
    ids = _post(host, *[_op(f"s{n}", type_="seek") for n in range(3)])
    page.open(f"{host.url}console/?types=seek&from=now")
    page.until("document.querySelector('#badge').textContent === 'live'")

    def choose(kind: str, value: str) -> None:
        page.js(f"document.querySelector('#from').value = {kind!r}")
        page.js("document.querySelector('#from').dispatchEvent(new Event('change'))")
        page.js(f"document.querySelector('#from-value').value = {value!r}")
        page.js("document.querySelector('#filters').requestSubmit()")

    choose("cursor", "nonsense")
    assert page.js("document.querySelector('#from-value').validity.customError")
    assert page.js("location.search") == "?types=seek&from=now"
    choose("cursor", ids[1])
    page.until("document.querySelectorAll('.object').length === 1")
    assert _text(page, ".object") == "seek/s2"
    choose("time", "2020-01-01T00:00")
    page.until("document.querySelectorAll('.object').length === 3")
    since = page.js("new Date('2020-01-01T00:00').getTime()")
    assert page.js("location.search").endswith(f"from={since}")
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    page.open(f"{host.url}console/?types=seek&from=1577836805000#/events")
    assert page.js("document.querySelector('#from-value').value") == "2020-01-01T05:30:05"
    page.until("document.querySelectorAll('.object').length === 3")
    page.js("document.querySelector('#events').id = 'before'")
    page.js("document.querySelector('#filters').requestSubmit()")
    page.until("!document.querySelector('#before')")
    page.until("document.querySelectorAll('.object').length === 3")
    times = "[...document.querySelectorAll('#events time')].map((t) => [t.textContent, t.title])"
    assert all(a.endswith(" UTC+5:30") and b.endswith(" UTC") for a, b in page.js(times))


def test_a_host_that_is_gone_and_returns(browser: ClientConnection, tmp_path: Path) -> None:
    """One badge says so, no word on the page says OK, and the view is refreshed afterwards."""
    with Server(data=tmp_path / "data") as host, chromium.tab(browser) as page:
        page.open(f"{host.url}console/#/overview")
        page.until("document.querySelector('#badge').textContent === 'OK'")
        host.stop()
        page.until("document.querySelector('#badge').textContent === 'not reached'")
        assert "OK" not in page.js("document.querySelector('header').textContent")
        since = "document.querySelector('#since').textContent"
        page.until(f"/last answer \\d+ s ago, next attempt in \\d+ s/.test({since})")
        host.start()
        page.until("document.querySelector('#badge').textContent === 'OK'")
        assert page.js("document.querySelector('#since').hidden")


def test_the_events_resume_when_the_host_returns(browser: ClientConnection, tmp_path: Path) -> None:
    """The badge is that of the host while it is gone, then that of the connection."""
    with Server(data=tmp_path / "data") as host, chromium.tab(browser) as page:
        page.open(f"{host.url}console/?from=now")
        page.until("document.querySelector('#badge').textContent === 'live'")
        host.stop()
        page.until("document.querySelector('#badge').textContent === 'not reached'")
        assert _text(page, "#status") == ""
        host.start()
        page.until("document.querySelector('#badge').textContent === 'live'")
        _post(host, _op("a"))
        page.until("document.querySelectorAll('.object').length === 1")


def _sign_in(page: chromium.Page, secret: str, user: str = "") -> None:
    if page.js("!document.querySelector('#dialog')"):
        page.js("document.querySelector('#sign-in').click()")
    page.until("document.querySelector('#dialog')?.open")
    page.js(f"document.querySelector('#dialog-user').value = {user!r}")
    page.js(f"document.querySelector('#dialog-secret').value = {secret!r}")
    page.js("document.querySelector('#dialog').classList.add('answered')")
    page.js("document.querySelector('#dialog-do').click()")
    page.until("!document.querySelector('#dialog.answered')")  # another may be open already


def test_a_person_signs_in_and_out(browser: ClientConnection, tmp_path: Path) -> None:
    """After a wrong password the page asks again, and says why; signing out keeps nothing."""
    password = tmp_path / "password"
    password.write_text("open-sesame\n")
    options = ("--read-password-file", str(password))
    with Server(*options, data=tmp_path / "data") as host, chromium.tab(browser) as page:
        page.open(f"{host.url}console/")
        page.until("document.querySelector('#dialog')?.open")
        _sign_in(page, "wrong")
        page.until("document.querySelector('#dialog')?.open")
        assert "not accepted (password: is not the read" in _text(page, "#dialog-says")
        _sign_in(page, "open-sesame", user="anybody")
        page.until("document.querySelector('#badge').textContent === 'live'")
        assert _text(page, "#sign-in") == "Sign out"
        page.js("document.querySelector('[data-view=objects]').click()")
        page.until("!document.querySelector('#no-objects').hidden")
        assert "open-sesame" not in page.js("JSON.stringify([{...localStorage}, location.href])")
        page.js("document.querySelector('#sign-in').click()")
        page.until("!!document.querySelector('#dialog')?.open")
        assert "not accepted" not in _text(page, "#dialog-says")
        assert "open-sesame" not in page.js("JSON.stringify({...sessionStorage})")


def test_a_store_that_does_not_answer_is_not_a_host_that_is_gone(
    host: Server, page: chromium.Page
) -> None:
    """P9.3: the answer is 503 with a status; an answer of a proxy has none."""
    page.open(f"{host.url}console/#/feeds")
    page.until("document.querySelector('#badge').textContent === 'OK'")
    answers = """
    const before = window.fetch;
    window.fetch = async (url, options) => url.endsWith("/status")
      ? new Response(window.answer, { status: 503 }) : before(url, options);
    """
    page.js(f"new Function({answers!r})()")
    page.js('window.answer = \'{"status":"UNAVAILABLE","clients":null}\'')
    page.until("document.querySelector('#badge').textContent === 'UNAVAILABLE'")
    page.js("window.answer = '<html>Bad gateway'")
    page.until("document.querySelector('#badge').textContent === 'not reached'")


@pytest.mark.parametrize("view", ["events", "overview"])
def test_the_page_works_below_a_prefix(
    browser: ClientConnection, tmp_path: Path, view: str
) -> None:
    """Its requests and its WebSocket have the prefix of the deployment."""
    prefix = ("--setting", "TIDINGS_URL_PREFIX=/app")
    with Server(*prefix, data=tmp_path / "data") as host, chromium.tab(browser) as page:
        page.open(f"{host.url}app/console/?from=now#/{view}")
        badge = "live" if view == "events" else "OK"
        page.until(f"document.querySelector('#badge').textContent === {badge!r}")
        if view == "overview":
            page.until("document.querySelectorAll('#followers tr').length === 2")
        paths = "performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)"
        assert [path for path in page.js(paths) if not path.startswith("/app/")] == []
        socket = page.js("import('/app/console/api.js').then((api) => api.socketAddress())")
        assert socket == f"ws://127.0.0.1:{host.port}/app/ws"


def test_an_area_opens_its_folder(host: Server, page: chromium.Page) -> None:
    """By a click into the picture; the table below it does the same by keyboard."""
    _post(host, *[_op(f"a/b/{n}", type_="area") for n in range(2)])
    page.open(f"{host.url}console/?types=area#/overview")
    page.until("document.querySelector('.bar .count')?.textContent === '2'")
    page.js(
        "document.querySelector('#map').dispatchEvent(new MouseEvent('click',"
        " {clientX: document.querySelector('#map').getBoundingClientRect().x + 20,"
        " clientY: document.querySelector('#map').getBoundingClientRect().y + 20}))"
    )
    page.until("document.querySelector('#crumbs').textContent === 'everythingareaa/'")


def test_more_objects_are_listed_on_demand(host: Server, page: chromium.Page) -> None:
    """A page of the list has a thousand; the copy of one object is its JSON."""
    for at in range(0, 1200, 300):
        lines = [json.dumps(_op(f"m{n}", type_="many")) for n in range(at, at + 300)]
        headers = {"content-type": "application/x-ndjson"}
        httpx.post(f"{host.url}ops", content="\n".join(lines), headers=headers).raise_for_status()
    page.open(f"{host.url}console/?type=many#/objects")
    page.js(_CLIPBOARD)
    page.until("document.querySelectorAll('#objects-found tr').length >= 1000")
    if page.js("document.querySelectorAll('#objects-found tr').length") < 1200:
        _click(page, "Show more")
    page.until("document.querySelectorAll('#objects-found tr').length === 1200")
    assert _text(page, "#objects-card caption") == "1,200 rows"
    _click(page, "Object", "th")
    _click(page, "Object", "th")
    assert _text(page, "#objects-found button") == "many/m1199"
    assert page.js(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Show more').hidden"
    )
    _click(page, "many/m7")
    page.until("document.querySelector('#object-state')?.hidden === false")
    page.js("document.querySelector('[aria-label=\"Copy the object\"]').click()")
    page.until("!!window.copied")
    assert json.loads(page.js("window.copied"))["id"] == "m7"


# Answer requests for the history of a feed in place of the host, which takes a sample a minute.
_HISTORY = """
const before = window.fetch;
window.fetch = async (url, options) => {
  if (!url.endsWith("/history")) return before(url, options);
  window.requests = (window.requests ?? 0) + 1;
  return new Response(JSON.stringify(ANSWER), { status: STATUS });
};
"""


def _overview(page: chromium.Page, host: Server, answer: object, status: int = 200) -> None:
    """Show the overview of a page that gets *answer* for the history."""
    page.open(f"{host.url}console/#/feeds")
    script = _HISTORY.replace("ANSWER", json.dumps(answer)).replace("STATUS", str(status))
    page.js(f"new Function({script!r})()")
    page.js("document.querySelector('[data-view=overview]').click()")


def _legend(page: chromium.Page, chart: str) -> list[str]:
    found = f"document.querySelector('#{chart}').parentElement.querySelectorAll('.legend li')"
    page.until(f"{found}.length > 0")
    return list(page.js(f"[...{found}].map((each) => each.textContent.trim())"))


def test_9_10_the_charts_show_the_hour_that_the_host_kept(
    host: Server, page: chromium.Page
) -> None:
    """Each line has a name in the legend and its values in a table; the largest come first."""
    now = int(page.js("Date.now()"))
    lags = [{"state": n, "consumer search": 10 * n, **{f"consumer c{i}": 0 for i in range(6)}}
            for n in range(3)]  # fmt: skip
    samples = [
        {"ms": now - 60_000 * (3 - n), "operations": 7 * n, "events": n, "head": n, "lags": lags[n]}
        for n in range(3)
    ]
    _overview(page, host, {"interval_ms": 60_000, "samples": samples})

    assert _legend(page, "throughput") == [
        "operations posted: 14 a minute",
        "events sent on streams: 2 a minute",
    ]
    lines = _legend(page, "lag")
    assert lines[:2] == ["consumer search: 20 pages", "state: 2 pages"]
    assert lines[-1] == "and 2 more in the table" and len(lines) == 7
    assert page.js("document.querySelectorAll('#lag path').length") == 6
    drawn = str(page.js("document.querySelector('#throughput .line1').getAttribute('d')"))
    assert drawn.count("L") == 2
    heights = [float(step.split()[1]) for step in drawn.replace("M", "L").split("L")[1:]]
    assert heights == sorted(heights, reverse=True) and heights[0] > heights[-1]
    label = str(page.js("document.querySelector('#lag').getAttribute('aria-label')"))
    assert "consumer search 20" in label
    assert [row[1:3] for row in _rows(page, "lag-rows", 3)] == [
        ["20", "2"],
        ["10", "1"],
        ["0", "0"],
    ]


def test_without_a_history_the_charts_show_what_the_page_saw(
    host: Server, page: chromium.Page
) -> None:
    """A stage keeps none; the page says so, asks once, and counts by itself."""
    _overview(page, host, {"error": {"code": "no_history", "message": "CloudWatch has it"}}, 501)
    page.until("document.querySelector('#origin')?.textContent.includes('keeps no history')")
    _post(host, _op("seen"))
    counted = "[...document.querySelectorAll('#throughput-rows td:nth-child(2)')]"
    page.until(f"{counted}.some((cell) => cell.textContent !== '0')")  # a status is a second old

    assert _legend(page, "lag") == ["push: 0 pages", "state: 0 pages"]
    assert page.js(f"{counted}.at(-1).textContent") == "0"
    assert page.js("window.requests") == 1


# Keep the challenge of each answer that the page gets.
_CHALLENGES = """
window.challenges = [];
const before = window.fetch;
window.fetch = async (...given) => {
  const answer = await before(...given);
  if (answer.status === 401) challenges.push(answer.headers.get("www-authenticate"));
  return answer;
};
"""


def test_no_view_opens_the_dialog_of_the_browser(browser: ClientConnection, tmp_path: Path) -> None:
    """P10.5: a browser opens one for a Basic challenge; each view gets another one."""
    with Server(data=tmp_path / "data") as host, chromium.tab(browser) as page:
        make_key(host, "--role", "read")
        page.open(f"{host.url}console/#/overview")
        page.js(_CHALLENGES)
        views = page.js("[...document.querySelectorAll('[data-view]')].map((a) => a.dataset.view)")
        for view in views:
            page.js(f"document.querySelector('[data-view={view}]').click()")
            page.until(f"document.querySelector('[aria-current]').dataset.view === {view!r}")
            page.js("new Promise((done) => setTimeout(done, 300))")
            page.js("document.querySelector('#dialog')?.close()")
        page.until("challenges.length >= 3")
        assert set(page.js("challenges")) == {'Bearer realm="tidings"'}


def test_the_pictures_of_the_guide_can_be_taken_again(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """They have the size of the ones in the repository, and are small enough for a page."""
    pictures.take(browser, tmp_path)
    for name in (pictures.DESKTOP, pictures.PHONE):
        taken, kept = ((folder / name).read_bytes() for folder in (tmp_path, pictures.FOLDER))
        assert taken[16:24] == kept[16:24]  # width and height of a PNG
        assert len(taken) < pictures.BYTES_MAX > len(kept)
        assert name in GUIDE.read_text()
    recording = (pictures.FOLDER / pictures.RECORDING).read_bytes()
    assert recording.count(b"ANMF") == 20 and len(recording) < pictures.RECORDING_BYTES_MAX
