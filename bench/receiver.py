"""A stand-in for a feed in a process of its own: it answers each POST at once, and counts lines."""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection


@contextlib.contextmanager
def running() -> Iterator[tuple[int, Callable[[], int]]]:
    """Its port, and how many lines it was sent so far."""
    listener = socket.create_server(("127.0.0.1", 0))
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_count, args=[listener, theirs])
    process.start()

    def counted() -> int:
        mine.send("how many?")
        count: int = mine.recv()
        return count

    try:
        yield listener.getsockname()[1], counted
    finally:
        process.terminate()
        process.join()


def _count(listener: socket.socket, asked: Connection) -> None:
    """Answer 204 to every request and count the lines."""
    total = 0
    buffers: dict[socket.socket, bytearray] = {}
    while True:
        waiting: list[int | socket.socket] = [listener.fileno(), asked.fileno(), *buffers]
        for each in select.select(waiting, [], [])[0]:
            if each == asked.fileno():
                asked.recv()
                asked.send(total)
            elif each == listener.fileno():
                buffers[listener.accept()[0]] = bytearray()
            elif isinstance(each, socket.socket):
                total += _received(each, buffers)


def _received(sock: socket.socket, buffers: dict[socket.socket, bytearray]) -> int:
    """Lines of the requests that are complete with what *sock* brings."""
    data = sock.recv(1 << 20)
    if not data:
        del buffers[sock]
        return 0
    buffers[sock] += data
    return _requests(sock, buffers[sock])


def _requests(sock: socket.socket, buffer: bytearray) -> int:
    lines = 0
    while (end := buffer.find(b"\r\n\r\n")) >= 0:
        head = bytes(buffer[:end]).lower()
        size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(buffer) < end + 4 + size:
            break
        lines += buffer.count(b"\n", end + 4, end + 4 + size) + 1
        del buffer[: end + 4 + size]
        sock.send(b"HTTP/1.1 204 No Content\r\n\r\n")
    return lines
