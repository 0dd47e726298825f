"""Lines between parties and a broker, each by a port of its own, that can be cut while bytes are on their way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable


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
        self.target = target
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._lines = {name: _Line() for name in names}
        self._thread = threading.Thread(target=self._run, daemon=True)
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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in the thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for line in self._lines.values():
            server = self._loop.run_until_complete(
                asyncio.start_server(lambda r, w, line=line: self._pass(line, r, w), "127.0.0.1", 0)  # type: ignore[misc]
            )
            line.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    @staticmethod
    def _cut(line: _Line) -> None:
        line.whole = False
        line.reset()

    @staticmethod
    def _mend(line: _Line) -> None:
        line.whole = True
        line.flows.set()

    async def _pass(self, line: _Line, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        line.ends.add(back)
        try:
            if line.whole:
                far, forth = await asyncio.open_connection("127.0.0.1", self.target)
                line.ends.add(forth)
                await asyncio.gather(self._copy(line, near, forth), self._copy(line, far, back))
        except OSError:
            pass
        finally:
            for end in (back, *(end for end in [locals().get("forth")] if end)):
                end.transport.abort()
                line.ends.discard(end)

    @staticmethod
    async def _copy(line: _Line, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while blob := await source.read(1 << 16):
                await line.flows.wait()
                target.write(blob)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()
