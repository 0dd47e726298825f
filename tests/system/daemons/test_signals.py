"""What ends a device or a coordinator (TERM and INT) and what does not: any other signal, a broker or a reader that is
gone.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress

import pytest

from hushgrid.node.runtime.signals import LEFT
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE
from tests.support.daemons.small_daemons import Centre, on_zones, pair

SCENARIO = on_zones("input", 12, epsilon=1000.0)
OTHERS = sorted(signal.valid_signals() - LEFT - {signal.SIGTERM, signal.SIGINT})


@pytest.fixture
def zones(tmp_path, url, stack):
    return pair(tmp_path, url, stack)


def settled(daemon):
    """Long enough for a signal to be dealt with; the process is still there."""
    time.sleep(1.0)
    assert daemon.child.poll() is None, daemon.said


def test_no_signal_but_term_and_int_ends_a_node_and_it_runs_afterwards(zones, tmp_path, url, stack):
    daemons = [target.start() for target in zones.values()]
    for number in OTHERS:
        daemons[0].child.send_signal(number)
    settled(daemons[0])
    Centre(tmp_path / "centre", url, stack).finish(SCENARIO)
    assert daemons[0].end() == 0
    daemons[1].child.send_signal(signal.SIGINT)
    assert daemons[1].code() == 0
    assert "stopped by SIGTERM" in daemons[0].said
    assert "stopped by SIGINT" in daemons[1].said


def test_no_signal_but_term_and_int_ends_a_coordinator_and_usr1_begins_a_run(zones, tmp_path, url, stack):
    for target in zones.values():
        target.start()
    centre = Centre(tmp_path / "centre", url, stack)
    log = tmp_path / "coordinator.log"
    with log.open("wb") as file:
        process = subprocess.Popen([*HUSHGRID, "coordinator", str(centre.write(SCENARIO))], stderr=file)
    stack.callback(process.kill)

    def said(text, count=1):
        deadline = time.monotonic() + PATIENCE
        while log.read_text().count(text) < count:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    said("the next run:")
    for number in set(OTHERS) - {signal.SIGUSR1}:
        process.send_signal(number)
    time.sleep(1.0)
    assert log.read_text().count("the next run:") == 1
    process.send_signal(signal.SIGUSR1)
    said("the next run:", 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_a_hang_up_while_a_device_is_still_reading_its_files_does_not_end_it(zones):
    target = zones["z1"]
    loads = target.directory / "loads.csv"
    text = loads.read_text()
    loads.unlink()
    os.mkfifo(loads)  # whoever reads it waits for what is written here
    process = subprocess.Popen([*HUSHGRID, "node", str(target.file)], stderr=subprocess.PIPE, text=True)
    try:
        with loads.open("w") as pipe:  # open once the device reads
            for number in OTHERS:
                process.send_signal(number)
            time.sleep(0.5)
            assert process.poll() is None
            pipe.write(text)
    finally:
        process.terminate()
        with suppress(BrokenPipeError, OSError):
            os.close(os.open(loads, os.O_WRONLY | os.O_NONBLOCK))
        process.kill()
        process.communicate(timeout=PATIENCE)


def test_a_reader_of_its_log_that_is_gone_ends_no_device(zones, tmp_path, url, stack):
    target = zones["z1"]
    process = subprocess.Popen([*HUSHGRID, "node", str(target.file)], stderr=subprocess.PIPE, text=True)
    stack.callback(process.kill)
    stderr = process.stderr
    assert "ready on" in stderr.readline()
    stderr.close()
    zones["z2"].start()
    Centre(tmp_path / "centre", url, stack).finish(SCENARIO)  # each device says several lines of it
    assert process.poll() is None
    process.terminate()
    assert process.wait(PATIENCE) == 0


@pytest.fixture
def notified(tmp_path):
    """A socket in systemd's place, and its address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        address = str(tmp_path / "notify")
        made.bind(address)
        made.settimeout(PATIENCE)
        yield made, address


def heard(notified, text):
    """The messages until one has this text."""
    found = []
    while not any(text in line for line in found):
        found.append(notified.recv(1000).decode())
    return found


@pytest.mark.parametrize(
    ("role", "when"),
    [("node", "between"), ("node", "before"), ("node", "after"), ("coordinator", "before"), ("coordinator", "after")],
)
def test_term_while_the_broker_is_being_killed_ends_in_order(role, when, notified, mosquitto, tmp_path, stack):
    there, address = notified
    target = pair(tmp_path, mosquitto.url, stack)["z1"]
    file = target.file if role == "node" else Centre(tmp_path / "centre", mosquitto.url, stack).write(SCENARIO)
    for attempt in range(3):
        log = tmp_path / f"{attempt}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*HUSHGRID, role, str(file)], stderr=out, env={**os.environ, "NOTIFY_SOCKET": address}
            )
        stack.callback(process.kill)
        heard(there, "STATUS=waits for a run" if role == "node" else "STATUS=waits for z1, z2")
        if when == "before":
            mosquitto.kill()
            process.terminate()
        elif when == "after":
            process.terminate()
            mosquitto.kill()
        else:
            os.kill(mosquitto.pid, signal.SIGSTOP)
            process.terminate()
            heard(there, "STOPPING=1")  # what it has published since is not acknowledged
            mosquitto.kill()
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert "stopped by SIGTERM" in log.read_text()
        state = target.state if role == "node" else file.parent / "state"
        assert {path.suffix for path in state.iterdir()} <= {".ledger"}, [*state.iterdir()]
        mosquitto.start(mosquitto.port)


@pytest.mark.parametrize("role", ["node", "coordinator"])
def test_a_broker_that_is_not_there_is_waited_for_as_long_as_it_takes(role, notified, embedded, tmp_path, stack):
    there, address = notified
    embedded.kill()
    url = embedded.url
    zones = pair(tmp_path, url, stack)
    file = zones["z1"].file if role == "node" else Centre(tmp_path / "centre", url, stack).write(SCENARIO)
    log = tmp_path / "log"
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "900000"}
    with log.open("wb") as out:
        process = subprocess.Popen([*HUSHGRID, role, str(file)], stderr=out, env=environment)
    stack.callback(process.kill)
    assert "READY=1" in heard(there, "READY=1")
    heard(there, "STATUS=waits for the broker")
    heard(there, "Connection refused")
    began = time.monotonic()
    while time.monotonic() < began + 11.0:  # a process used to end after ten seconds
        assert heard(there, "WATCHDOG=1")  # fed all the while
    assert process.poll() is None
    embedded.start(embedded.port)
    heard(there, "STATUS=waits for a run" if role == "node" else "STATUS=waits for z1, z2")
    process.terminate()
    assert process.wait(PATIENCE) == 0
    heard(there, "STOPPING=1")
    assert log.read_text().count("the broker is away") == 1, log.read_text()


def test_the_journal_gets_each_lines_priority_and_nobody_else_does(zones, tmp_path):
    target = zones["z1"]
    log = tmp_path / "log"
    log.touch()
    found = log.stat()
    own = f"{found.st_dev}:{found.st_ino}"
    for stream, expected in ((own, ("<3>", "<4>", "<6>")), ("1:1", ("", "", ""))):
        error, warning, information = expected
        log.write_bytes(b"")
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*HUSHGRID, "node", str(target.file)], stderr=out, env={**os.environ, "JOURNAL_STREAM": stream}
            )
        while "ready on" not in log.read_text():
            time.sleep(0.02)
        (target.directory / "loads.csv").rename(target.directory / "kept.csv")
        process.send_signal(signal.SIGHUP)
        while "stay as they were" not in log.read_text():
            time.sleep(0.02)
        (target.directory / "kept.csv").rename(target.directory / "loads.csv")
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert [line[: len(information)] for line in log.read_text().splitlines()] == [
            information,
            warning,
            information,
        ]
        with log.open("ab") as out:
            ended = subprocess.run(
                [*HUSHGRID, "node", str(tmp_path / "none.yaml")],
                stderr=out,
                env={**os.environ, "JOURNAL_STREAM": stream},
            )
        assert ended.returncode == 2
        assert log.read_text().splitlines()[-1].startswith(f"{error}hushgrid: ")
