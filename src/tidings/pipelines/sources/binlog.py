"""
Uncompress the events of a MySQL or MariaDB binary log before they are decoded.

MariaDB compresses single events (`log_bin_compress`), MySQL whole transactions
(`binlog_transaction_compression`). An event that the decoder does not know would be skipped, so it
is an error.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.protocol import MysqlPacket

from tidings.pipelines.errors import WrongPipeline

_DUMP = 0x12  # the command after which packets are events
_HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server, size, position of the next, flags
_FORMAT, _QUERY, _PAYLOAD, _INCIDENT = 15, 2, 40, 26
_IGNORABLE = 0x80  # flag: the server says that an event may be skipped
# The types that MariaDB compresses, and those that they become.
_COMPRESSED = {165: _QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_UPDATES, _VERSION_2 = (24, 31), (30, 31, 32)
_KNOWN = {2, 3, 4, 5, 13, 14, 15, 16, 17, 18, 19, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 35}
_KNOWN |= {36, 37, 38, 39, 41, 160, 161, 162, 163, 164}
_QUERY_FIELDS = 13  # bytes before the status variables of a query
_ROWS_FIELDS = 8  # bytes of the table and flags of a rows event
_ZSTD, _NONE = 0, 255  # compressions of a transaction
_COMPRESSION_FIELD, _END_FIELD = 2, 0


class LogConnection(pymysql.Connection):
    """A connection that returns each event of the log uncompressed."""

    _is_dump = False
    _checksum = 0  # bytes after each event

    def _write_bytes(self, data: bytes) -> None:
        self._is_dump = data[4:5] == bytes([_DUMP])
        self._waiting: deque[bytes] = deque()
        super()._write_bytes(data)  # type: ignore[misc]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if not self._is_dump:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        while not self._waiting:
            packet = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
            data: bytes = packet.get_all_data()
            if data[0] != 0:
                return packet  # the end of the log
            if data[5] == _FORMAT:
                self._checksum = 4 if data[-5] == 1 else 0
            self._waiting.extend(expanded(data, self._checksum))
        return packet_type(self._waiting.popleft(), self.encoding)


def expanded(packet: bytes, checksum: int) -> Iterator[bytes]:
    """
    Yield the events in *packet*, each as a packet; *checksum* is the number of bytes after it.

    Raises:
        WrongPipeline: the type of the event or its compression is unknown.
    """
    timestamp, kind, server, _, position, flags = _HEADER.unpack_from(packet, 1)
    start, end = 1 + _HEADER.size, len(packet) - checksum
    if kind == _PAYLOAD:
        events = list(_events(_transaction(packet[start:end])))
        for number, (header, body) in enumerate(events, 1):
            # Only after the last one can the log be resumed.
            place = position if number == len(events) else 0
            size = _HEADER.size + len(body) + checksum
            fields = _HEADER.unpack(header)
            head = _HEADER.pack(*fields[:3], size, place, fields[5])
            yield b"\0" + head + body + b"\0" * checksum
    elif kind in _COMPRESSED:
        body = _uncompressed(packet[start:end], _COMPRESSED[kind])
        size = _HEADER.size + len(body) + checksum
        head = _HEADER.pack(timestamp, _COMPRESSED[kind], server, size, position, flags)
        yield b"\0" + head + body + packet[end:]
    elif kind in _KNOWN or flags & _IGNORABLE:
        yield packet
    else:
        what = "an incident: changes are missing" if kind == _INCIDENT else f"an event {kind}"
        rule = "which cannot be read: a reader with a new name copies the table again"
        raise WrongPipeline(f"the binary log has {what}, {rule}")


def _uncompressed(body: bytes, kind: int) -> bytes:
    """Return the body of a MariaDB event of the type *kind* uncompressed."""
    if kind == _QUERY:
        database, status = body[8], int.from_bytes(body[11:13], "little")
        at = _QUERY_FIELDS + status + database + 1
    else:
        extra = int.from_bytes(body[8:10], "little") if kind in _VERSION_2 else 0
        columns, at = _number(body, _ROWS_FIELDS + extra)
        at += (columns + 7) // 8 * (2 if kind in _UPDATES else 1)
    if body[at] & 0x70:
        raise WrongPipeline(f"the binary log has an unknown compression {body[at]:#x}")
    return body[:at] + zlib.decompress(body[at + 1 + (body[at] & 7) :])


def _transaction(body: bytes) -> bytes:
    """Return the events of a MySQL transaction uncompressed."""
    at, compression = 0, _NONE
    while True:
        field, at = _number(body, at)
        if field == _END_FIELD:
            break
        size, at = _number(body, at)
        if field == _COMPRESSION_FIELD:
            compression, _ = _number(body, at)
        at += size
    if compression == _NONE:
        return body[at:]
    if compression != _ZSTD:
        raise WrongPipeline(f"the binary log has an unknown compression {compression}")
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(body[at:], read_across_frames=True) as stream:
        return stream.read()


def _events(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the header and the body of each event in *data*."""
    at = 0
    while at < len(data):
        size = _HEADER.unpack_from(data, at)[3]
        yield data[at : at + _HEADER.size], data[at + _HEADER.size : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the packed integer at *at* and the place after it."""
    sizes = {252: 2, 253: 3, 254: 8}
    size = sizes.get(data[at])
    if size is None:
        return data[at], at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
