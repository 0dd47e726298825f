"""What the simulated runs of a sweep have in common and is not made for each anew: rows as they were read, an
optimum.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

MOST = 12  #: things that are kept; the one that was not asked for the longest goes first
T = TypeVar("T")


class Cache:
    """Things by the digest of what they were made from."""

    def __init__(self, entries: Mapping[bytes, Any] | None = None) -> None:
        self.entries: OrderedDict[bytes, Any] = OrderedDict(entries or {})
        self.most = MOST + len(self.entries)
        self.lock = threading.RLock()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """What is kept under `key`; made if there is none."""
        with self.lock:  # a worker may have several threads
            if key not in self.entries:
                self.entries[key] = make()
            self.entries.move_to_end(key)
            if len(self.entries) > self.most:
                self.entries.popitem(last=False)
            thing: T = self.entries[key]
        return thing


_NOW: ContextVar[Cache | None] = ContextVar("kept", default=None)


@contextmanager
def using_cache(cache: Cache) -> Iterator[None]:
    """Runs of this thread look into `kept` first. Meanwhile the files they read must stay as they are."""
    token = _NOW.set(cache)
    try:
        yield
    finally:
        _NOW.reset(token)


def current_cache() -> Cache | None:
    """Where runs of this thread look first."""
    return _NOW.get()


def once(make: Callable[[], T], source: tuple[object, ...] | None) -> T:
    """make(), or what an earlier run has kept that was made `of` the same; None: of something that has no digest."""
    cache = _NOW.get()
    return make() if cache is None or source is None else cache.get(digest(source), make)


def digest(source: tuple[object, ...]) -> bytes:
    """Of values that JSON can hold, structs among them."""
    return hashlib.blake2b(msgspec.json.encode(source), digest_size=16).digest()
