"""WebSockets on one connection: clients cannot cause error logs or block the server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

if TYPE_CHECKING:
    from tidings.server.connections import Connection

# The library logs protocol errors of clients with a traceback; the client receives a close code
# instead.
_silent = logging.getLogger("tidings.server.websockets")
_silent.setLevel(logging.CRITICAL + 1)
_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection, handed over by the HTTP protocol after the head of the handshake."""

    transport: Connection  # type: ignore[assignment]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn.logger = _silent
        self.conn.debug = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport.lost()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.stalled()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.written()

    def shutdown(self) -> None:
        """Abort a handshake; the app closes its WebSockets itself, with a suitable close code."""
        if not self.handshake_complete:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(_BAD_HANDSHAKE)
            self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """Pass a message to the app; close the connection if its text is not valid UTF-8."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(CloseCode.INVALID_DATA, "text must be UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """Send a message of the app; complete the answer of a refused handshake."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True
