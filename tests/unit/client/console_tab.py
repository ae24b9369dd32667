"""A server with passwords and keys, and a tab of its console, for tests in a real browser."""

from __future__ import annotations

from typing import Any

import httpx
from click.testing import CliRunner

from tests.hosts import make_key
from tests.unit.client import chromium
from tidings.client.cli.main import main
from tidings.server.running import Server

PASSWORD = "one password for both roles"
READ_PASSWORD = "the read password"
ALL_ROLES = ("--role", "read", "--role", "ingest", "--role", "admin")
HOSTILE = "<img src=x onerror=alert(1)>"


class Host:
    """A server whose feed `main` has a password.

    *key* has the roles read, ingest and admin; *password* opens all roles, *reader* only reads.
    """

    password, reader = PASSWORD, READ_PASSWORD

    def __init__(self, server: Server) -> None:
        self.server, self.url = server, server.url
        self.key = make_key(server, *ALL_ROLES)
        for role, text in (("read", PASSWORD), ("ingest", PASSWORD), ("read", READ_PASSWORD)):
            command = ["feed", "password", role, *server.locator, "--feed", "main"]
            more = ["--keep-old"] if text == READ_PASSWORD else []
            done = CliRunner().invoke(main, [*command, *more], input=f"{text}\n")
            assert done.exit_code == 0, done.output
        self.http = httpx.Client(base_url=f"{server.url}feeds/main/", auth=("", self.key))

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def put(self, path: str, **body: Any) -> None:
        self.http.put(path, json=body).raise_for_status()


class Tab:
    """A tab of the console, used by keyboard."""

    def __init__(self, page: chromium.Page, host: Host) -> None:
        self.page, self.host = page, host

    def show(self, view: str, secret: str, *, width: int = 1280) -> None:
        """Open *view* with the credential *secret*."""
        self.page.open(f"{self.host.url}console/#/{view}", width=width)
        self.page.until("!!document.querySelector('#sign-in')")
        self.page.js(
            "document.querySelector('#dialog') || document.querySelector('#sign-in').click()"
        )
        self.fill("dialog", secret=secret)
        self.page.press("Enter")
        self.page.until("!document.querySelector('#dialog')")

    def fill(self, form: str, **values: str | bool) -> None:
        """Enter *values* in the fields of *form*; a list or a check box is chosen."""
        for name, value in values.items():
            at = f"document.querySelector('#{form}-{name.rstrip('_')}')"
            self.page.until(f"!!{at}")
            self.page.js(f"{at}.focus()")
            kind = self.page.js(f"{at}.type")
            if kind in ("select-one", "checkbox"):
                changed = f"{at}.value = {value!r}" if kind == "select-one" else f"{at}.click()"
                events = "['input', 'change']"
                self.page.js(
                    f"{changed}; for (const each of {events}) "
                    f"{at}.dispatchEvent(new Event(each, {{bubbles: true}}))"
                )
                continue
            self.page.js(f"{at}.select()")
            if value:
                self.page.write(str(value))
            else:
                self.page.js(
                    f"{at}.value = ''; {at}.dispatchEvent(new Event('input', {{bubbles: true}}))"
                )

    def text(self, selector: str) -> str:
        return str(self.page.js(f"document.querySelector({selector!r})?.textContent ?? ''"))

    def said(self, text: str, at: str = "#notice") -> None:
        """Wait until *text* is in the notice."""
        self.page.until(f"document.querySelector({at!r})?.textContent.includes({text!r})")

    def press(self, name: str) -> None:
        """Press the button that is called *name*, with Enter."""
        found = (
            "[...document.querySelectorAll('button')].find((each) => "
            f"(each.ariaLabel ?? each.textContent) === {name!r} && each.checkVisibility())"
        )
        self.page.until(f"!!{found}")
        self.page.js(f"{found}.focus()")
        self.page.press("Enter")
