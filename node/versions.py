"""What is installed."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version(package: str) -> str:
    """Of an installed package, read from its files once a process. PackageNotFoundError where it is not installed."""
    return metadata.version(package)
