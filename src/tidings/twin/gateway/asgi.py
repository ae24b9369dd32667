"""Read and answer ASGI requests, for the gateways."""

from __future__ import annotations

from tidings.http.asgi import Message, Send
from tidings.twin.gateway.http_events import HttpResponse


def headers_of(scope: Message) -> list[tuple[str, str]]:
    """Return the headers in the order of the wire; a name may repeat."""
    return [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]


def client_of(scope: Message) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "127.0.0.1"


async def respond(send: Send, response: HttpResponse) -> None:
    headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in response.headers]
    headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
