"""Files that survive a power cut: whole under their name, or the file that was there before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hushgrid.node import system

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_PRIVATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(
    path: Path, data: bytes, *, sync: bool = True, mode: int | None = None, group: int | None = None
) -> None:
    """Replace a file by one with this content; it is on the disk, and so is its name, when this returns.
    Raises OSError if the disk fails.

    A rename may reach the disk before the content it names, and is itself kept only once its folder is. With `mode` and
    `group` (a number) the file has these before anybody can open it under its name.
    """
    new = path.with_name(path.name + ".new")
    private = mode is not None or group is not None
    try:
        if private:
            system.machine.unlink(new)
        file = system.machine.open(new, _PRIVATE if private else _NEW, 0o600 if private else 0o666)
        try:
            if group is not None:
                os.fchown(file, -1, group)
            if mode is not None:
                os.fchmod(file, mode)
            write(file, data, 0)
            if sync:
                system.machine.sync(file)
        finally:
            system.machine.close(file)
        system.machine.replace(new, path)
    except OSError:
        with suppress(OSError):
            system.machine.unlink(new)
        raise
    if sync:
        sync_folder(path.parent)


def write(file: int, blob: bytes | memoryview, offset: int) -> None:
    """Writes all of it at this place of an open file. Raises OSError if the disk fails."""
    while blob:
        done = system.machine.pwrite(file, blob, offset)
        blob, offset = blob[done:], offset + done


def sync_file(path: Path) -> None:
    """What a file holds is on the disk when this returns. Raises OSError if the disk fails."""
    file = system.machine.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        system.machine.sync(file)
    finally:
        system.machine.close(file)


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk when this returns. Raises OSError if the disk fails."""
    folder = system.machine.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        system.machine.sync(folder)
    finally:
        system.machine.close(folder)


def stamp(path: Path) -> str:
    """What a file looks like from outside: a file that was replaced has another inode, size or time.
    Raises OSError if the disk fails.
    """
    status = os.stat(path)
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
