"""A flood does not fill a device's memory, whatever its broker passes on and whichever MQTT is spoken."""

import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hushgrid.broker.servers.process import free_port
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import PATIENCE, ROOT, Fleet, broker

FLOOD = 250_000_000  # bytes of one publication
GROWS = 64_000  # kB: eight times the payload limit is more than all copies of the largest message that is taken
OLD = (  # a device that speaks MQTT 3.1.1 from the start
    "import sys\n"
    "from hushgrid.node.transport import mqtt\n"
    "first = mqtt.MqttLink.__init__\n"
    "def init(self, *args, **options):\n"
    "    first(self, *args, **options)\n"
    "    self._attempts.server.protocol = mqtt.paho.MQTTv311\n"
    "mqtt.MqttLink.__init__ = init\n"
    "from hushgrid.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))"
)


def resident(pid: int) -> int:
    """kB of a process in memory now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def length(size: int) -> bytes:
    """A packet's length as MQTT writes it."""
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits)


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def flood(port: int, topic: str, size: int):
    """A client that publishes `size` bytes at once; yields now and then, while they are on their way."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
        body = text("MQTT") + b"\x04\x82\x00\x3c" + text("hostile") + text("coordinator")
        sock.sendall(b"\x10" + length(len(body)) + body)
        assert sock.recv(4)[:1] == b"\x20"
        sock.sendall(b"\x30" + length(len(text(topic)) + size) + text(topic))
        for _ in range(size // 1_000_000):
            sock.sendall(bytes(1_000_000))
            yield
        sock.sendall(b"\xe0\x00")


@pytest.mark.mosquitto
@pytest.mark.parametrize("protocol", ["MQTT 5", "MQTT 3.1.1"])
def test_a_publication_of_250_megabytes_through_a_broker_without_limit_is_not_taken_in(
    protocol, tmp_path, mosquitto_program
):
    with ExitStack() as stack:
        port = free_port()
        fleet = Fleet(tmp_path / "deploy", f"mqtt://127.0.0.1:{port}", stack)
        fleet.edit("mosquitto-try.conf", "max_packet_size 5242880\n", "")
        fleet.edit("mosquitto-try.conf", "max_inflight_bytes 16777216\n", "")
        fleet.edit("mosquitto-try.conf", "max_queued_bytes 16777216\n", "")
        fleet.edit("mosquitto-try.conf", "use_username_as_clientid true\n", "")
        broker(fleet, mosquitto_program, "mosquitto-try.conf", "1883 127.0.0.1", f"{port} 127.0.0.1")
        if protocol == "MQTT 3.1.1":
            fleet.program = [sys.executable, "-c", OLD]
        daemon = fleet.node("z1")
        before = most = resident(daemon.child.pid)
        for _ in flood(port, f"{ROOT}/all/coordinator", FLOOD):
            most = max(most, resident(daemon.child.pid))
        deadline = time.monotonic() + PATIENCE
        told = "z1: dropped a message: not a plan" if protocol == "MQTT 5" else "z1: the broker is back"
        while told not in daemon.said:
            assert time.monotonic() < deadline, daemon.said
            most = max(most, resident(daemon.child.pid))
            link = MqttLink(fleet.url, "coordinator", username="coordinator", persistent=False)
            link.connect(PATIENCE)
            link.publish(f"{ROOT}/all/coordinator", _small())  # it comes after the flood, where that is withheld
            link.close()
        assert most - before < GROWS
        if protocol == "MQTT 3.1.1":
            assert daemon.said.count("z1: the broker is away: it sent 250000") == 1
        assert daemon.end() == 0


def _small() -> bytes:
    from hushgrid.node import wire

    return wire.encode(wire.Envelope(bytes(16), 0, 0, None, wire.Join()))


def test_the_embedded_broker_closes_the_connection_of_who_sends_too_much_and_serves_the_others(embedded):
    before = most = resident(embedded.pid)
    with suppress(ConnectionResetError, BrokenPipeError):
        for _ in flood(embedded.port, "to/a", FLOOD):
            most = max(most, resident(embedded.pid))
        pytest.fail("the broker has read it all")
    assert most - before < GROWS
    link = MqttLink(embedded.url, "a", subscriptions=["to/a"], persistent=False)
    link.connect(PATIENCE)
    link.publish("to/a", b"1")
    assert [m.payload for m in link.poll(PATIENCE)] == [b"1"]
    link.close()
