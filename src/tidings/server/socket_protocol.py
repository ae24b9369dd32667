"""WebSockets on one connection: no client makes the log report an error, or keeps us waiting."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

if TYPE_CHECKING:
    from tidings.server.connections import Connection

# It reports what clients do wrong as errors with a traceback; they are told by the close code.
_silent = logging.getLogger("tidings.server.websockets")
_silent.setLevel(logging.CRITICAL + 1)
_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection, which the protocol of HTTP hands over after the handshake's head."""

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
        """End a handshake; the app closes its WebSockets itself, with a code of its choice."""
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
        """Hand over a message; one that claims to be text and is not ends the connection."""
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
        """Send a message of the app; a refused handshake is complete, too."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True
