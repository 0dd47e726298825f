"""What is installed, and what runs."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version(package: str) -> str:
    """Of an installed package, read from its files once a process. PackageNotFoundError where it is not installed."""
    return metadata.version(package)


#: Of the program that runs, read as it is loaded: an upgrade on the disk under a running process changes nothing here.
RUNNING = version("hushgrid")
