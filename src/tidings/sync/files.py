"""Read and write files by their addresses: paths on this machine, or `s3://bucket/key`.

The module also finds the files of a dump. The dump may be a file, a folder, a pattern, an address
on S3, or stdin.
"""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

S3 = "s3://"
_LOCAL = "file://"
_ATTEMPTS = 5  # attempts of a request, so that one late response does not end a read of minutes
_LEFT = "._"  # first characters of names to skip: hidden files, and markers such as `_SUCCESS`


@dataclass(frozen=True, slots=True)
class File:
    """A file of *size* bytes."""

    address: str
    size: int


def is_on_s3(address: str) -> bool:
    return address.startswith(S3)


def list_files(address: str) -> list[File]:
    """Return the file *address*, or all files in the folder *address* in the order of their names.

    Files in subfolders are included. Empty files, hidden files and markers in the folder are left
    out. The list is empty if *address* does not exist.
    """
    return _on_s3(*_split(address)) if is_on_s3(address) else _here(_path(address))


def fetch(address: str, path: Path) -> None:
    """Copy an object of S3 to *path*."""
    bucket, key = _split(address)
    s3_client().download_file(bucket, key, str(path))


def put(source: str, address: str) -> None:
    """Copy a file, or an object of S3, to the object *address*."""
    bucket, key = _split(address)
    if is_on_s3(source):
        there = dict(zip(("Bucket", "Key"), _split(source), strict=True))
        s3_client().copy(there, bucket, key)
    else:
        s3_client().upload_file(str(_path(source)), bucket, key)


@contextmanager
def open_file(address: str) -> Iterator[IO[bytes]]:
    """Open a file, or an object of S3, and read it from its start."""
    if not is_on_s3(address):
        with _path(address).open("rb") as file:
            yield file
        return
    bucket, key = _split(address)
    with closing(s3_client().get_object(Bucket=bucket, Key=key)["Body"]) as body:
        yield body


def write(address: str, text: str) -> None:
    if is_on_s3(address):
        bucket, key = _split(address)
        s3_client().put_object(Bucket=bucket, Key=key, Body=text.encode())
        return
    _path(address).parent.mkdir(parents=True, exist_ok=True)
    _path(address).write_text(text)


def read(address: str) -> str:
    if not is_on_s3(address):
        return _path(address).read_text()
    bucket, key = _split(address)
    text: bytes = s3_client().get_object(Bucket=bucket, Key=key)["Body"].read()
    return text.decode()


def remove(address: str) -> None:
    """Delete a file, or a folder with everything in it. Do nothing if it does not exist."""
    if not is_on_s3(address):
        path = _path(address)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return
    bucket, key = _split(address)
    client = s3_client()
    client.delete_object(Bucket=bucket, Key=key)
    for page in _pages(client, bucket, f"{key}/"):
        keys = [{"Key": each["Key"]} for each in page]
        client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})


def _here(path: Path) -> list[File]:
    if not path.is_dir():
        return [File(str(path), path.stat().st_size)] if path.exists() else []
    sizes = [(each, each.stat().st_size) for each in sorted(path.rglob("*")) if each.is_file()]
    return [
        File(str(each), size)
        for each, size in sizes
        if size and _is_meant(each.relative_to(path).parts)
    ]


def _on_s3(bucket: str, key: str) -> list[File]:
    client = s3_client()
    first = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", [])
    # If the object *key* exists, it is the first of the listing.
    if first and first[0]["Key"] == key and not key.endswith("/"):
        return [File(f"{S3}{bucket}/{key}", first[0]["Size"])]
    prefix = f"{key.rstrip('/')}/" if key else ""
    return [
        File(f"{S3}{bucket}/{each['Key']}", each["Size"])
        for page in _pages(client, bucket, prefix)
        for each in page
        if each["Size"] and _is_meant(each["Key"].removeprefix(prefix).split("/"))
    ]


def _is_meant(names: Iterable[str]) -> bool:
    return not any(name[:1] in _LEFT for name in names)


def _pages(client: Any, bucket: str, prefix: str) -> Iterator[list[dict[str, Any]]]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return (page["Contents"] for page in pages if page.get("Contents"))


def _split(address: str) -> tuple[str, str]:
    """Return the bucket and the key in an address on S3."""
    bucket, _, key = address.removeprefix(S3).partition("/")
    return bucket, key


def _path(address: str) -> Path:
    return Path(address.removeprefix(_LOCAL))


def s3_client() -> Any:
    """Return a client of S3 with the credentials of the caller."""
    import boto3  # noqa: TID251 uses the operator's credentials, not a function's role
    from botocore.config import Config  # noqa: TID251 see above

    retries: Any = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
    return boto3.client("s3", config=Config(retries=retries))


STDIN = "-"
_GZIP = b"\x1f\x8b"
_SPECIAL = re.compile(r"([][{}*?\\,^])")
# The name of a copy ends with this number of characters of the original name. So the name remains
# recognizable, and is short enough for any file system.
_NAME_CHARS = 100
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


class NoDump(Exception):
    """No file matches the address of the dump, which is in the message."""


@dataclass(frozen=True, slots=True)
class DumpCopy:
    """The files of a dump for Spark, of *size* bytes.

    If several lines describe an object, the line in the file with the last path applies. *names*
    maps the path of each copied file to its original address.
    """

    paths: list[str]
    size: int
    names: Mapping[str, str] = field(default_factory=dict)


def copy_dump(dump: str, stdin: IO[bytes], folder: Path) -> DumpCopy:
    """Return the files of *dump* for an engine on this machine.

    Stdin and objects of S3 are copied to *folder*, because a dump with errors is read twice.

    Raises:
        NoDump: *dump* names no file.
        BotoCoreError, ClientError: S3 does not respond, or rejects the request.
    """
    if dump == STDIN:
        path = _spool(stdin, folder)
        return DumpCopy([_exactly(str(path))], path.stat().st_size, {str(path): "stdin"})
    if is_on_s3(dump):
        return _fetch(dump, folder)
    listed = _matching(dump)
    return DumpCopy(_paths(dump, listed), sum(each.size for each in listed))


def in_place(dump: str) -> list[str]:
    """Return the addresses of the files in *dump*, a file or folder, for a Spark job that reads S3.

    Raises:
        NoDump, BotoCoreError, ClientError: see `copy_dump`.
    """
    return _paths(dump, list_files(dump))


def upload_dump(dump: str, stdin: IO[bytes], folder: Path, to: str) -> str:
    """Copy the files of *dump* to the folder *to* on S3; return the address of the copy.

    The names of the copies sort in the order of the files.

    Raises:
        NoDump, BotoCoreError, ClientError: see `copy_dump`.
    """
    if dump == STDIN:
        listed = list_files(str(_spool(stdin, folder)))
    else:
        listed = list_files(dump) if is_on_s3(dump) else _matching(dump)
    if not listed:
        raise NoDump(f"{dump}: no such file")
    for number, each in enumerate(listed):
        put(each.address, f"{to}{_with_number(number, each.address)}")
    return to if len(listed) > 1 else f"{to}{_with_number(0, listed[0].address)}"


def _matching(dump: str) -> list[File]:
    names = [dump] if Path(dump).exists() else sorted(glob.glob(dump))
    return [each for name in names for each in list_files(name)]


def _paths(dump: str, listed: list[File]) -> list[str]:
    if not listed:
        raise NoDump(f"{dump}: no such file")
    addresses = (each.address for each in listed)
    return [_exactly(at if is_on_s3(at) else str(Path(at).resolve())) for at in addresses]


def _fetch(dump: str, folder: Path) -> DumpCopy:
    """Copy objects to files in the order of keys, as not every key is a valid path."""
    listed = list_files(dump)
    names = {
        str(folder.resolve() / _with_number(number, each.address)): each.address
        for number, each in enumerate(listed)
    }
    for path, address in names.items():
        fetch(address, Path(path))
    paths = _paths(dump, [File(path, 0) for path in names])
    return DumpCopy(paths, sum(each.size for each in listed), names)


def _with_number(number: int, address: str) -> str:
    """Return a name with *number*, and the end of the original name, to keep the suffix `.gz`."""
    return f"{number:09}-{_ODD.sub('_', address.rpartition('/')[2])[-_NAME_CHARS:]}"


def _spool(stdin: IO[bytes], folder: Path) -> Path:
    start = stdin.read(len(_GZIP))
    path = folder.resolve() / ("stdin.gz" if start == _GZIP else "stdin")
    with path.open("wb") as file:
        file.write(start)
        shutil.copyfileobj(stdin, file)
    return path


def _exactly(path: str) -> str:
    """Escape the characters that Spark would interpret as a pattern."""
    return _SPECIAL.sub(r"\\\1", path)
