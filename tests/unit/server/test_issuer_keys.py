"""Tokens with keys that must be fetched: neither a thread nor the loop waits for the issuer."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tidings.core.auth.oidc_claims import Issuer
from tidings.core.errors import Unavailable
from tidings.http.outbound.credentials import ASK_AGAIN_S, Tokens
from tidings.server.issuer_keys import IssuerKeys
from tidings.server.running import Server

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 180.0
REQUESTS = 40  # more than a server has threads for requests
OPERATION = {"event": "insert", "type": "v", "id": "1"}


def token(kid: str) -> str:
    """Return a token without a subject or a signature."""
    parts = ({"alg": "RS256", "kid": kid}, {"iss": "x"})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join([*encoded, b"AAAA"]).decode()


class Silent:
    """An issuer that accepts connections and says nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._hang, "127.0.0.1", 0)

    async def _hang(self, *_: object) -> None:
        self.asked += 1
        await asyncio.sleep(10 * PATIENCE_S)


async def _forged(folder: Path) -> tuple[list[int], list[int], int]:
    """Return the answers to forged tokens, those to other requests at the same time, and the number
    of fetches.
    """
    issuer = Silent()
    listening = await issuer.serve()
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    setting = json.dumps({"issuer": url, "audience": "a", "claim": "c"})
    with Server("--setting", f"TIDINGS_OIDC={setting}", data=folder) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:

            def ask(number: int) -> Any:
                headers = {"authorization": f"Bearer {token(str(number))}"}
                if number % 2:
                    return client.post("ops", json=OPERATION, headers=headers)
                return client.get("changes", headers=headers)

            forged = [asyncio.ensure_future(ask(number)) for number in range(REQUESTS)]
            while not issuer.asked:
                await asyncio.sleep(0.01)
            others = [(await client.get(path)).status_code for path in ("health", "status")]
            assert not any(each.done() for each in forged)  # they waited for none of these
            statuses = [(await each).status_code for each in forged]
        assert "LoopWouldBlock" not in server.errors()
    listening.close()
    return statuses, others, issuer.asked


def test_an_issuer_that_is_silent_holds_up_no_one_else(tmp_path: Path) -> None:
    """More tokens than there are threads wait for one fetch, and get 503."""
    statuses, others, asked = asyncio.run(_forged(tmp_path))
    assert statuses == [503] * REQUESTS
    assert others == [200, 200]
    assert asked == 1


def test_requests_await_one_fetch() -> None:
    """They name unknown keys; the issuer is asked again for one only after some time."""
    fetches, on, now_s = [], threading.Event(), [0.0]

    def ask(url: str) -> dict[str, Any]:
        fetches.append(url)
        assert on.wait(PATIENCE_S)
        raise Unavailable("away")

    tokens = Tokens(Issuer("https://id.example", "a", "c"), ask, lambda: now_s[0])
    keys = IssuerKeys(tokens)

    async def play() -> None:
        waiting = [
            asyncio.ensure_future(keys.prepare(f"Bearer {token(str(each))}")) for each in range(9)
        ]
        said = json.dumps({"action": "subscribe", "password": token("x")})
        waiting.append(asyncio.ensure_future(keys.prepare_message(said)))
        while not fetches:
            await asyncio.sleep(0.001)
        assert not any(each.done() for each in waiting)
        for text in ("", "Basic e30=", "Bearer tdk_x", "Bearer eyJ.x.y"):
            await keys.prepare(text)
        await keys.prepare_message("eyJ")
        on.set()
        await asyncio.gather(*waiting)
        await keys.prepare(f"Bearer {token('again')}")
        assert len(fetches) == 1
        now_s[0] += ASK_AGAIN_S
        await keys.prepare(f"Bearer {token('again')}")
        assert len(fetches) == 2

    asyncio.run(play())


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later request fetches the keys."""
    fetches: list[str] = []

    def ask(url: str) -> dict[str, Any]:
        fetches.append(url)
        raise Unavailable("away")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def play() -> None:
        keys = IssuerKeys(Tokens(Issuer("https://id.example", "a", "c"), ask))
        with monkeypatch.context() as failing:
            failing.setattr(threading.Thread, "start", start)
            await keys.prepare(f"Bearer {token('1')}")
        await keys.prepare(f"Bearer {token('1')}")
        assert len(fetches) == 1

    asyncio.run(play())
