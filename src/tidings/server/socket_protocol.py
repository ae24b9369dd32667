"""The protocol of a WebSocket: the frames of its client, within a budget."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

from tidings.http.asgi import CUT_AFTER
from tidings.server.sockets import SET_WAITING, WRITE_FRAME

if TYPE_CHECKING:
    from websockets.http11 import Request

    from tidings.server import http_protocol

SLICE_BYTES = 128  # bytes of frames that are parsed at once: at most 21 frames or 18 messages
# The time that a frame or a message takes from the budget of its client. So a client may send 200
# frames or 20 messages a second, which take some 2 % of the event loop.
FRAME_S, MESSAGE_S = 0.005, 0.05
BURST_S = 0.25  # the largest unused budget: five messages, as many as a client sends at its start
# The library would log protocol errors with a traceback; the close code for the client is enough.
_silent = logging.getLogger("tidings.server.websockets")
_silent.setLevel(logging.CRITICAL + 1)
_quiet = logging.getLogger("tidings.server.handshakes")
_quiet.setLevel(logging.WARNING)  # uvicorn logs each handshake with its query, which is private
_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SocketProtocol(WebSocketsSansIOProtocol):
    """The protocol of a WebSocket, which takes over after `HttpProtocol` has read the head.

    Received bytes are parsed in slices while the client has budget for frames, reads what is sent
    to it, and has no message that waits for the app. Otherwise nothing more is read from it.
    """

    transport: http_protocol.ClosingTransport  # type: ignore[assignment]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn.logger, self.logger = _silent, _quiet
        self.conn.debug = False
        self._received = bytearray()  # not parsed yet
        self._spent_s = 0.0  # the time of the loop at which the whole budget is available again
        self._turn: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope[WRITE_FRAME] = self.write_frame  # type: ignore[literal-required]
            self.scope[SET_WAITING] = self.set_waiting  # type: ignore[literal-required]
            self.scope[CUT_AFTER] = self.transport.cut_after  # type: ignore[literal-required]

    def set_waiting(self, waits: bool) -> None:
        """Start or stop waiting for the client's subscription.

        While the connection *waits*, it has a deadline, and counts as idle (see `Admission`).
        """
        if not waits:
            self.transport.stop_waiting()
        elif not self.disconnected:
            self.transport.wait(self.transport.bounds.subscribe_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self.conn.fail(CloseCode.POLICY_VIOLATION, "a client subscribes after it connects")
        self.handle_parser_exception()

    def write_frame(self, frame: bytes) -> bool:
        """Write an encoded message now; return False if the connection is full or closing."""
        is_open = self.handshake_complete and self.conn.state is State.OPEN
        if self.disconnected or not is_open or self.close_sent or not self.writable.is_set():
            return False
        self.transport.write(frame)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._received.clear()
        self.transport.on_closed()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.on_full()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.on_drained()
        self._parse()

    def shutdown(self) -> None:
        """Abort the handshake if it is not complete.

        After the handshake, the app itself closes its WebSockets, with a suitable close code.
        """
        if not self.handshake_complete:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.transport.meters.received_bytes += len(data)
        if self.handshake_initiated:
            self._received += data
            self._parse()
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(_BAD_HANDSHAKE)
            self.transport.close()

    async def receive(self) -> Any:
        """Return the next ASGI message for the app. The next ones are parsed when none is left."""
        message = await super().receive()
        self._parse()
        return message

    def _parse(self) -> None:
        """Parse received bytes, and read more of them, as long as the client may send."""
        while self._received and self._may_send():
            piece = bytes(self._received[:SLICE_BYTES])
            del self._received[:SLICE_BYTES]
            super().data_received(piece)
        if self.transport.is_closing():
            self._received.clear()
        elif self._received or not self.writable.is_set():
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _may_send(self) -> bool:
        """Return True if a slice may be parsed. If only the budget is used up, parse it later."""
        if self.read_paused or not self.writable.is_set() or self.transport.is_closing():
            return False
        if self._spent_s - BURST_S <= self.loop.time():
            return True
        if self._turn is None:
            self._turn = self.loop.call_at(self._spent_s - BURST_S, self._take_turn)
        return False

    def _take_turn(self) -> None:
        self._turn = None
        self._parse()

    def handle_events(self) -> None:
        """Handle parsed frames, and count them against the client's budget."""
        self._spent_s = max(self._spent_s, self.loop.time()) + FRAME_S * len(self.conn.events)
        super().handle_events()

    def send_receive_event_to_app(self) -> None:
        """Pass a message to the app; close the connection if the message is not valid UTF-8."""
        self._spent_s += MESSAGE_S
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
        """Send an ASGI message of the app. The body of a refusal completes the handshake."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True
