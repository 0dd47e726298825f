"""Brokers of ours start, are killed, come back and never outlive us."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers import mosquitto, process
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport.mqtt import MqttLink

PATIENCE = 60.0  # seconds until a test gives up; none depends on how long a thing takes


def ended(pid: int) -> bool:
    """Gone, or a zombie whose new parent has not looked yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def reachable(url: str) -> bool:
    link = MqttLink(url, "reach", persistent=False)
    try:
        link.connect(0.5)
    except Stopped:
        return False
    link.close()
    return True


def test_a_broker_says_what_it_is_and_accepts_on_loopback(any_broker):
    assert re.fullmatch(r"mosquitto \d+\.\d+.*|embedded \(amqtt \d+\.\d+.*\)", any_broker.name)
    assert any_broker.url == f"mqtt://127.0.0.1:{any_broker.port}"
    assert reachable(any_broker.url)
    listening = {c.laddr.ip for c in psutil.Process(any_broker.pid).net_connections("tcp") if c.status == "LISTEN"}
    assert listening == {"127.0.0.1"}


def test_a_closed_broker_is_gone(any_broker):
    pid = any_broker.pid
    any_broker.close()
    assert ended(pid)
    assert not reachable(any_broker.url)
    any_broker.close()


def test_a_broker_restarts_on_its_port_with_nothing_kept(any_broker):
    link = MqttLink(any_broker.url, "a", persistent=False)
    link.connect(PATIENCE)
    link.publish("state/a", b"alive", retain=True)
    link.close()
    before = any_broker.pid, any_broker.url
    any_broker.restart()
    assert ended(before[0])
    assert any_broker.url == before[1]
    link = MqttLink(any_broker.url, "b", subscriptions=["state/+", "end"], persistent=False)
    link.connect(PATIENCE)
    link.publish("end", b"")
    assert [m.topic for m in link.poll(PATIENCE)] == ["end"]
    link.close()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("choice", ["embedded", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
def test_a_broker_does_not_outlive_the_process_that_started_it(choice, number, tmp_path, request):
    if choice == "mosquitto":
        request.getfixturevalue("start_mosquitto")
    code = (
        "import sys, time; from pathlib import Path; from hushgrid.broker.servers import choose as brokers\n"
        "with brokers.start(sys.argv[1], Path(sys.argv[2])) as broker:\n"
        "    print(broker.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, choice, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert not ended(pid)
        parent.send_signal(number)
    wait_until(lambda: ended(pid))


def test_a_broker_is_not_in_our_terminals_process_group(any_broker):
    assert os.getpgid(any_broker.pid) != os.getpgid(0)


def test_what_was_published_just_before_a_disconnect_is_routed(any_broker):
    link = MqttLink(any_broker.url, "reader", subscriptions=["t"], persistent=False)
    link.connect(PATIENCE)
    publish = b"".join(b"\x32\x06\x00\x01t" + i.to_bytes(2, "big") + bytes([i]) for i in range(1, 101))
    with socket.create_connection(("127.0.0.1", any_broker.port)) as hasty:
        hasty.sendall(b"\x10\x11\x00\x04MQTT\x04\x02\x00\x05\x00\x05hasty")
        assert hasty.recv(4) == b"\x20\x02\x00\x00"
        hasty.sendall(publish + b"\xe0\x00")
        received = []
        while len(received) < 100 and (more := link.poll(PATIENCE)):
            received += more
    assert sorted(m.payload[0] for m in received) == list(range(1, 101))
    link.close()


def test_a_broker_survives_whatever_connects(any_broker):
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x10", b"\x10\xff\xff\xff\x7f", bytes(1000), b"\x10\x02\x00\x00"):
        with socket.create_connection(("127.0.0.1", any_broker.port)) as stranger:
            stranger.sendall(noise)
    assert reachable(any_broker.url)


def test_auto_is_mosquitto_where_there_is_one_and_else_embedded(tmp_path, monkeypatch):
    expected = "embedded" if brokers.find_mosquitto() is None else "mosquitto"
    with brokers.start("auto", tmp_path) as broker:
        assert broker.name.startswith(expected)
    for module in (brokers, mosquitto):
        monkeypatch.setattr(module, "find_mosquitto", lambda: None)
    with brokers.start("auto", tmp_path) as broker:
        assert broker.name.startswith("embedded")
    with pytest.raises(InputError, match=r"^--broker mosquitto: found none on PATH"):
        brokers.start("mosquitto", tmp_path)


def test_a_broker_that_is_there_is_used_and_left_running(any_broker, tmp_path):
    with brokers.start(any_broker.url, tmp_path) as given:
        assert given.name == given.url == any_broker.url
    assert reachable(any_broker.url)


@pytest.mark.mosquitto
def test_a_mosquitto_that_does_not_start_says_why(start_mosquitto):
    with pytest.raises(Stopped, match=r"^mosquitto \S+: did not start: Error: .*nonsense"):
        start_mosquitto(config=["nonsense true"])


@pytest.mark.mosquitto
def test_a_port_that_is_taken_meanwhile_is_replaced(start_mosquitto, monkeypatch, tmp_path):
    taken = start_mosquitto()
    ports = iter([taken.port, taken.port])
    choose = process.free_port
    monkeypatch.setattr(process, "free_port", lambda: next(ports, None) or choose())
    for choice in ("mosquitto", "embedded"):
        with brokers.start(choice, tmp_path / choice) as broker:
            assert broker.port != taken.port
            assert reachable(broker.url)
        ports = iter([taken.port])


def test_the_embedded_brokers_own_command_serves_and_ends_cleanly():
    command = [sys.executable, "-W", "error", "-m", "hushgrid.broker.servers.embedded", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        line = child.stdout.readline()
        url = re.fullmatch(r"listening on (mqtt://127\.0\.0\.1:\d+)\n", line)[1]
        link = MqttLink(url, "a", subscriptions=["x"])
        link.connect(PATIENCE)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=PATIENCE)
    link.close()
    assert (child.returncode, output, errors) == (0, "", "")


def test_a_taken_port_is_one_line(embedded, capsys):
    from hushgrid.broker.servers.embedded import main

    assert main(["--port", str(embedded.port)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"--port: found {embedded.port} .*, expected a free port\n", err)
