"""Which pages may have a browser ask, and under which names a server answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidings.core.auth.origins import (
    ForeignOrigin,
    UnknownHost,
    check_change,
    check_host,
    check_page,
    cors_headers,
)
from tidings.core.errors import WrongContentType

HOSTS = {
    "127.0.0.1:8042": True,
    "localhost": True,
    "LOCALHOST:8042": True,
    "[::1]:8042": True,
    "10.0.0.7:8042": True,
    "feed.lan:8042": True,
    "feed.lan.": True,
    "evil.example": False,
    "evil.example:8042": False,
    "127.0.0.1.evil.example": False,
    "localhost.evil.example": False,
    "feed.lan@evil.example": False,
    "[::1": False,
    "": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_name_that_suddenly_leads_to_us_is_not_ours(host: str) -> None:
    """DNS rebinding needs a name: addresses, localhost and the names that we have are answered."""
    if HOSTS[host]:
        check_host({"host": host}, {"feed.lan"})
        return
    with pytest.raises(UnknownHost) as refused:
        check_host({"host": host}, {"feed.lan"})
    assert (refused.value.status, refused.value.field) == (421, "Host")


def test_who_names_no_host_is_no_browser() -> None:
    """HTTP/1.0, as some probes speak it."""
    check_host({}, ())


LISTED = ("https://page.example", "*")
# By the headers of a request to http://feed.lan:8042: whether it may read, and change something.
PAGES: dict[str, tuple[Mapping[str, str], bool, bool]] = {
    "a machine": ({}, True, True),
    "a machine that says where it is from": ({"sec-fetch-site": "none"}, True, True),
    "our own page": ({"origin": "http://feed.lan:8042"}, True, True),
    "our own page behind a proxy": (
        {"origin": "https://a.example", "sec-fetch-site": "same-origin"},
        True,
        True,
    ),
    "another page": ({"origin": "https://evil.example"}, False, False),
    "another port": (
        {"origin": "http://feed.lan:3000", "sec-fetch-site": "same-site"},
        False,
        False,
    ),
    "a file": ({"origin": "null"}, False, False),
    "a port that is none": ({"origin": "http://feed.lan:x"}, False, False),
    "a page that names none": ({"sec-fetch-site": "cross-site"}, False, False),
    "a named page": (
        {"origin": "https://page.example", "sec-fetch-site": "cross-site"},
        True,
        True,
    ),
}


@pytest.mark.parametrize("who", PAGES)
def test_who_may_have_a_browser_ask(who: str) -> None:
    """Our own pages and listed ones may; `*` lets every page read, and none change."""
    headers, reads, changes = PAGES[who]
    request = {"host": "feed.lan:8042", "content-type": "application/json", **headers}
    assert passes(check_page, request, LISTED[:1]) is reads
    assert passes(check_page, request, LISTED)
    for origins in (LISTED[:1], LISTED):
        assert passes(check_change, request, origins, has_body=True) is changes


def passes(check: object, *arguments: object, **more: object) -> bool:
    assert callable(check)
    try:
        check(*arguments, **more)
    except ForeignOrigin as error:
        assert (error.status, error.field) == (403, "Origin")
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "may"),
    [
        ("application/json", True),
        ("application/yaml; charset=utf-8", True),
        ("", False),
        ("text/plain;charset=UTF-8", False),
        ("Application/X-WWW-Form-Urlencoded", False),
        ("multipart/form-data; boundary=x", False),
    ],
)
def test_a_browser_sends_nothing_that_a_form_could(kind: str, *, may: bool) -> None:
    """This includes our own page; a machine may send any content type, and so may a request without
    a body.
    """
    headers = {"host": "feed.lan", "origin": "http://feed.lan", "content-type": kind}
    check_change({**headers, "origin": "http://feed.lan:80"}, (), has_body=False)
    check_change({"host": "feed.lan", "content-type": kind}, (), has_body=True)
    if may:
        check_change(headers, (), has_body=True)
        return
    with pytest.raises(WrongContentType):
        check_change(headers, (), has_body=True)


def test_answers_name_the_page_that_may_read_them() -> None:
    """They also name the headers that the page may read, and tell caches to vary by origin."""
    exposed = {"access-control-expose-headers": "allow, last-event-id, retry-after"}
    named = {"access-control-allow-origin": "https://page.example", "vary": "Origin", **exposed}
    assert cors_headers("https://page.example", LISTED[:1]) == named
    assert cors_headers("https://evil.example", LISTED[:1]) == {"vary": "Origin"}
    assert cors_headers("https://evil.example", LISTED) == {
        "access-control-allow-origin": "*",
        **exposed,
    }
