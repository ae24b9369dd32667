"""Operations that some file systems refuse, such as SMB, NFS, FAT, and a volume of another owner.

A folder that cannot be synced and a mode that cannot be set are accepted. A name that cannot be
given exclusively, and a lock that cannot be taken, are errors, because data would be at risk.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import IO

_REFUSED = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EROFS,
        errno.EINVAL,
        errno.ENOSYS,
        errno.ENOTTY,
        errno.EOPNOTSUPP,
    }
)
_OTHERS = 0o007  # the permissions of users who are neither the owner nor in the group
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1  # of Linux

log = logging.getLogger(__name__)


def restrict(path: Path, mode: int) -> None:
    """Set the *mode* of *path*. If this is refused, warn if other users keep more permissions."""
    try:
        path.chmod(mode)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        if path.stat().st_mode & _OTHERS & ~mode:
            text = "%s has secrets and is open to other users, but its mode cannot be changed (%s)"
            log.warning(text, path, error.strerror)


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* durable, if its file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files in *source* to *target*, without their modes and times."""
    target.mkdir(parents=True, exist_ok=True)
    for each in source.iterdir():
        if each.is_dir():
            copy_folder(each, target / each.name)
        else:
            shutil.copyfile(each, target / each.name)


def publish(part: Path, target: Path) -> None:
    """Give the file *part* the name *target*, which stays free or has the whole file after a crash.

    *part* may remain as a second name.

    Raises:
        FileExistsError: *target* exists.
        OSError: the file system has neither links nor a rename that replaces nothing.
    """
    try:
        os.link(part, target)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        import ctypes

        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is None:
            raise
        names = _AT_FDCWD, os.fsencode(part), _AT_FDCWD, os.fsencode(target)
        if rename(*names, _RENAME_NOREPLACE):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(target)) from None
    sync_folder(target.parent)


def lock(file: int | IO[str]) -> bool:
    """Lock *file* until it is closed; return False if another process has locked it.

    Raises:
        OSError: the file system has no locks.
    """
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
