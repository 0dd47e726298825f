"""Lines between parties and a broker, each by a port of its own, that can be cut while bytes are on their way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial


class _Line:
    """What one party's connections go through."""

    def __init__(self) -> None:
        self.whole, self.flows = True, asyncio.Event()
        self.flows.set()
        self.ends: set[asyncio.StreamWriter] = set()
        self.port = 0

    def reset(self) -> None:
        for end in self.ends:
            end.transport.abort()
        self.ends.clear()


class Lines:
    """To the port `target` of loopback. They live in a thread of their own."""

    def __init__(self, target: int, names: Iterable[str]) -> None:
        self.target, self._ready = target, threading.Event()
        self._names, self._lines = list(names), dict[str, _Line]()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self._ready.wait()

    def port(self, name: str) -> int:
        """Where a party finds the broker."""
        return self._lines[name].port

    def cut(self, name: str) -> None:
        """Its connections are reset, and new ones too, until it is mended."""
        self._loop.call_soon_threadsafe(self._cut, self._lines[name])

    def silence(self, name: str) -> None:
        """Its connections stand, and nothing comes through."""
        self._loop.call_soon_threadsafe(self._lines[name].flows.clear)

    def mend(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._mend, self._lines[name])

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    # --- in the thread ---

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            for name in self._names:
                line = self._lines[name] = _Line()
                server = await asyncio.start_server(partial(self._pass, line), "127.0.0.1", 0)
                line.port = (await stack.enter_async_context(server)).sockets[0].getsockname()[1]
            self._ready.set()
            await self._over.wait()
            for line in self._lines.values():
                line.reset()

    @staticmethod
    def _cut(line: _Line) -> None:
        line.whole = False
        line.reset()

    @staticmethod
    def _mend(line: _Line) -> None:
        line.whole = True
        line.flows.set()

    async def _pass(self, line: _Line, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        ends = [back]
        line.ends.add(back)
        try:
            if line.whole:
                far, forth = await asyncio.open_connection("127.0.0.1", self.target)
                ends.append(forth)
                line.ends.add(forth)
                await asyncio.gather(self._copy(line, near, forth), self._copy(line, far, back))
        except OSError:
            pass  # the broker is away
        finally:
            for end in ends:
                end.transport.abort()
                line.ends.discard(end)

    @staticmethod
    async def _copy(line: _Line, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while blob := await source.read(1 << 16):
                await line.flows.wait()
                target.write(blob)
                await target.drain()
        target.close()
