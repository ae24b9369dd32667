"""The receiving process: it never waits for the disk, and counts what it cannot keep."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.agent.processes import operation
from tidings.agent import receiver
from tidings.agent.queue import Bound, Problem, Store
from tidings.agent.receiver import Receiver, bind_ports, kernel_drops


class Scene:
    """A receiver in a thread, its sender and its queue."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare("main")
        self.listener, self.sock = bind_ports("127.0.0.1", 0)
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender.connect(self.sock.getsockname())
        self.woken = threading.Event()
        self.lifeline, self.held = os.pipe()
        fast = Store(folder, wait_s=0, cuts=False)
        self.receiver = Receiver(self.sock, fast, Bound(), self.woken.set)
        self.thread = threading.Thread(target=self.receiver.run, args=[self.lifeline])

    def end(self) -> None:
        """End the receiver as the agent does; afterwards all received operations are in the
        queue."""
        os.close(self.held)
        self.thread.join(60)
        assert not self.thread.is_alive()
        os.close(self.lifeline)


@contextmanager
def _scene(folder: Path) -> Iterator[Scene]:
    scene = Scene(folder)
    scene.thread.start()
    yield scene
    if scene.thread.is_alive():
        scene.end()
    for each in (scene.sender, scene.listener, scene.store):
        each.close()


def test_a_lone_datagram_does_not_wait(tmp_path: Path) -> None:
    """It is in the queue, and the sender is woken, as soon as nothing follows it."""
    with _scene(tmp_path) as scene:
        scene.sender.send(operation("a"))
        assert scene.woken.wait(60)

        assert scene.store.totals().events == 1


def test_a_busy_disk_is_not_waited_for(tmp_path: Path) -> None:
    """Datagrams stay in memory while another transaction is open, and follow in order."""
    with _scene(tmp_path) as scene:
        with scene.store.transaction():
            for n in range(500):
                scene.sender.send(operation(n))
            assert not scene.woken.wait(0.1)
            assert kernel_drops(os.fstat(scene.sock.fileno()).st_ino) == 0
        scene.end()

        assert scene.store.totals().events == 500


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk blocks, operations above the limit are discarded and counted."""
    monkeypatch.setattr(receiver, "PENDING_MAX", 300)
    with _scene(tmp_path) as scene:
        with scene.store.transaction():
            for n in range(2_000):
                scene.sender.send(operation(n))
            assert not scene.woken.wait(0.3)
        scene.end()
        totals = scene.store.totals()

    assert 0 < totals.events <= 300
    assert totals.events + totals.discarded == 2_000


def test_the_kernels_buffer_is_emptied_at_the_end(tmp_path: Path) -> None:
    """Datagrams that arrived before the end are received."""
    scene = Scene(tmp_path)
    for n in range(3_000):
        scene.sender.send(operation(n))
    os.close(scene.held)
    scene.receiver.run(scene.lifeline)

    assert scene.store.totals().events == 3_000


def test_the_kernels_drops_are_known(tmp_path: Path) -> None:
    """They are read by the socket's inode if the system has the table."""
    table = tmp_path / "udp"
    table.write_text("sl local rem st queue tr retr uid timeout inode ref pointer drops\n")
    with table.open("a") as file:
        file.write(
            "1: 0:0 0:0 07 0:0 00:0 0 0 0 4711 2 0 42\n1: 0:0 0:0 07 0:0 00:0 0 0 0 8 2 0 7\n"
        )

    assert kernel_drops(4711, (tmp_path / "none", table)) == 42
    assert kernel_drops(1, (table,)) is None


def test_one_port_for_both(tmp_path: Path) -> None:
    """TCP and UDP under one number; a port that one of them lacks is not taken at all."""
    listener, datagrams = bind_ports("127.0.0.1", 0)
    with listener, datagrams:
        assert listener.getsockname() == datagrams.getsockname()
        assert datagrams.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 200_000

    listener, other = bind_ports("127.0.0.1", 0)  # a port that is free for TCP
    with other:
        listener.close()
        with pytest.raises(Problem, match="address already in use"):
            bind_ports(*other.getsockname())
        with socket.socket() as free:
            free.bind(other.getsockname())
