"""Files that survive a power cut: whole under their name, or the file that was there before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_file(
    path: Path, data: bytes, *, sync: bool = True, mode: int | None = None, group: int | None = None
) -> None:
    """Replace a file by one with this content; it is on the disk, and so is its name, when this returns.
    Raises OSError if the disk fails.

    A rename may reach the disk before the content it names, and is itself kept only once its folder is. With `mode` and
    `group` (a number) the file has these before anybody can open it under its name.
    """
    new = path.with_name(path.name + ".new")
    try:
        if mode is not None or group is not None:
            new.unlink(missing_ok=True)
        with open(new, "wb", opener=None if mode is None and group is None else _private) as file:
            if group is not None:
                os.fchown(file.fileno(), -1, group)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def sync_file(path: Path) -> None:
    """What a file holds is on the disk when this returns. Raises OSError if the disk fails."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk when this returns. Raises OSError if the disk fails."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def stamp(path: Path) -> str:
    """What a file looks like from outside: a file that was replaced has another inode, size or time.
    Raises OSError if the disk fails.
    """
    status = os.stat(path)
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
