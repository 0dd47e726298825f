"""What a disk has written, as the disk itself counts it, and a small disk of one's own to count on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECTOR = 512
SIZE = 48 << 20  #: bytes of a disk of one's own


def written(place: Path) -> int | None:
    """Bytes that the disk of a folder has written so far, all of them synced; None if it is no disk that says so."""
    os.sync()
    number = os.stat(place).st_dev
    try:
        stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text()
    except OSError:
        return None
    return int(stat.split()[6]) * SECTOR


@contextmanager
def own(image: Path, place: Path) -> Iterator[bool]:
    """An ext4 in a file, mounted at `place` while it is entered. False, and a plain folder, where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = os.geteuid() == 0 and _mounted(image, place)
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", place], check=False, stderr=subprocess.DEVNULL)
        image.unlink(missing_ok=True)


def _mounted(image: Path, place: Path) -> bool:
    with image.open("wb") as file:
        file.truncate(SIZE)
    # Tables are written when it is made: else the system does so later, whenever it has time.
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    commands: list[list[str | Path]] = [
        ["mkfs.ext4", "-q", "-F", "-E", lazy, image],
        ["mount", "-o", "loop,noatime", image, place],
    ]
    try:
        return all(subprocess.run(c, check=False, capture_output=True).returncode == 0 for c in commands)
    except OSError:
        return False
