"""The broker in pure Python: amqtt, for a laptop without mosquitto. Plain MQTT 3.1.1, anonymous, keeps nothing.

amqtt (0.12) does a few things that lose messages or leak them; they are put right here. What remains: a client that
falls silent without closing its connection is never given up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hushgrid.kernels.errors import HushgridError, InputError

if TYPE_CHECKING:
    from amqtt.session import Session

LARGEST = 5 << 20  #: bytes of a packet: a plan is at most 4 MiB, every other message far smaller
PLUGINS = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}


def serve(port: int = 0, host: str = "127.0.0.1") -> None:
    """Serves until SIGINT or SIGTERM; prints `listening on mqtt://HOST:PORT` when it does. Raises InputError:
    port taken.
    """
    # asyncio sets TCP_NODELAY only where the protocol is named.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise InputError(f"--port: found {port} on {host} ({what}), expected a free port") from error
        asyncio.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
    broker = _broker_class()({"listeners": {"default": {"type": "external"}}, "plugins": PLUGINS})
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await broker.start()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await broker.stream_connected(reader, writer, "default")

    server = await asyncio.start_server(accept, sock=listener)
    host, port = listener.getsockname()[:2]
    print(f"listening on mqtt://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    await stop.wait()
    server.close()
    await broker.shutdown()


def _broker_class() -> Any:
    try:
        import amqtt.broker
        from amqtt.adapters import BufferReader, StreamReaderAdapter, StreamWriterAdapter
        from amqtt.errors import MQTTError, NoDataError
        from amqtt.mqtt.packet import MQTTFixedHeader
    except ImportError as error:
        raise InputError(
            "--broker embedded: found no amqtt, expected it installed: pip install 'hushgrid[laptop]'"
        ) from error

    class Reader(StreamReaderAdapter):  # type: ignore[misc]
        def __init__(self, reader: object, writer: asyncio.StreamWriter) -> None:
            super().__init__(reader)
            self.writer = writer

        async def read(self, n: int = -1) -> bytes:
            # A packet's body is read at once, as long as its header says. amqtt goes on after an error of its own.
            if n > LARGEST:
                self.writer.transport.abort()
                raise ConnectionResetError(f"{n} bytes, at most {LARGEST} expected")
            data: bytes = await super().read(n)
            return data

    class Handler(amqtt.broker.BrokerProtocolHandler):  # type: ignore[misc]
        @classmethod
        async def init_from_connect(cls, reader: Any, writer: Any, *rest: object, **more: object) -> object:
            # amqtt parses a CONNECT of MQTT 5 as one of 3.1.1, and waits for the rest for ever.
            header = await MQTTFixedHeader.from_stream(reader)
            if header is None:
                raise NoDataError("closed before CONNECT")
            body = await reader.read(header.remaining_length)
            if body[:7] == b"\x00\x04MQTT\x05":
                writer.write(b"\x20\x02\x00\x01")  # CONNACK: unacceptable protocol version [MQTT-3.1.2-2]
                await writer.close()
                raise MQTTError("MQTT 5")
            packet = BufferReader(header.to_bytes() + body)
            handler, session = await super().init_from_connect(packet, writer, *rest, **more)
            # Every session is clean: amqtt does not keep anonymous ones, but mixes up the connections of one it reuses.
            session.clean_session = True
            return handler, session

    class Broker(amqtt.broker.Broker):  # type: ignore[misc]
        async def stream_connected(self, reader: object, writer: Any, listener_name: str) -> None:
            await self._client_connected(listener_name, Reader(reader, writer), StreamWriterAdapter(writer))

        async def _publish_retained_messages_for_subscription(self, subscription: Any, session: Session) -> None:
            # amqtt replays to every client that connects whatever matches anybody's subscription.
            if any(s is session for s, _ in self._subscriptions.get(subscription[0], ())):
                await super()._publish_retained_messages_for_subscription(subscription, session)

        async def _handle_disconnect(self, session: Session, handler: object, waiter: object) -> None:
            # What was acknowledged is still to be routed; amqtt would drop it. Taken at once, before the task that
            # waits for the next message takes one and is cancelled with it.
            queue = session.delivered_message_queue
            for message in [queue.get_nowait() for _ in range(queue.qsize())]:
                taken: asyncio.Future[object] = asyncio.Future()
                taken.set_result(message)
                await self._handle_message_delivery(session, handler, taken)
            await super()._handle_disconnect(session, handler, waiter)

        async def _delete_session(self, client_id: str) -> None:
            # A second connection of the same client ends the first [MQTT-3.1.4-2]; amqtt leaves it open.
            session, handler = self._sessions.get(client_id, (None, None))
            await super()._delete_session(client_id)
            if session is not None and session.transitions.is_connected():
                await handler.handle_connection_closed()

    amqtt.broker.BrokerProtocolHandler = Handler
    return Broker


def die_with(parent: int) -> None:
    """Asks Linux to kill this process when `parent`, which started it, ends in whatever way."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m hushgrid.broker.servers.embedded --port P`"""
    parser = argparse.ArgumentParser(prog="hushgrid.broker.servers.embedded")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--parent", type=int, help="end with this process")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        die_with(options.parent)
    try:
        serve(options.port)
    except HushgridError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
