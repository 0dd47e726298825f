"""A server of three is killed: NATS and RabbitMQ, on loopback. Who was connected to it goes on at another one."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from hushgrid.node.transport.mqtt import MqttLink
from tests.support.transport.clusters import SERVERS, plain

PATIENCE = 120.0
KINDS = ("nats", pytest.param("rabbitmq", marks=pytest.mark.long))
#: How many runs are made, each with another server killed: `make test-long` may ask for more.
KILLS = int(os.environ.get("HUSHGRID_KILLS", 3))
SECONDS = float(os.environ.get("HUSHGRID_KILLS_S", 900))  #: no run begins later
SCENARIO = """
hushgrid: 1
name: killed
seed: 1
problem: {kind: zones, case: case14, zones: 3, loads: {nonzero: case}, ac: none}
algorithm: {name: consensus-admm, rounds: 1500}
privacy: {mechanism: laplace, adjacency: {bounded-change: 0.01}, epsilon: 5.0}
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_messages_arrive_after_each_server_was_killed(kind, tmp_path, stack):
    cluster = plain(tmp_path / "cluster", kind, stack)
    speaker, hearer = (MqttLink(cluster.url, name, subscriptions=[f"to/{name}"]) for name in ("a", "b"))
    for link in (speaker, hearer):
        stack.callback(link.close)
        link.connect(PATIENCE)
    for number in range(SERVERS):
        cluster.kill(number)
        deadline, word = time.monotonic() + PATIENCE, str(number).encode()
        while word not in [message.payload for message in hearer.poll(0.1)]:
            assert time.monotonic() < deadline, (speaker.why, hearer.why)
            speaker.poll(0.1)
            speaker.publish("to/b", word)
        cluster.start(number)
        cluster.wait()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nats", "rabbitmq"])
def test_a_run_has_the_same_bits_whichever_server_is_killed(kind, tmp_path, stack):
    cluster = plain(tmp_path / "cluster", kind, stack)
    (tmp_path / "s.yaml").write_text(SCENARIO)

    def begun(broker, out):
        command = [sys.executable, "-m", "hushgrid", "run", "s.yaml", "--transport", "mqtt", "--broker", broker]
        with (tmp_path / f"{out}.log").open("wb") as log:
            return subprocess.Popen([*command, "--out", out], cwd=tmp_path, stdout=log, stderr=log)

    def cost(out):
        return json.loads((tmp_path / out / "result.json").read_text())["objective"]

    assert begun("mosquitto", "one").wait(PATIENCE) == 0
    failed, done, end = {}, 0, time.monotonic() + SECONDS
    for number in range(KILLS):
        if time.monotonic() > end:
            break
        run = begun(cluster.url, f"run-{number}")
        with suppress(subprocess.TimeoutExpired):
            run.wait(1.5 + number % 5 / 2)  # it is under way, or about to begin
        cluster.kill(number % SERVERS)
        died, done = time.monotonic(), done + 1
        if (code := run.wait(3 * PATIENCE)) or cost(f"run-{number}") != cost("one"):
            failed[number] = code, (tmp_path / f"run-{number}.log").read_text()[-2000:]
        print(f"{kind}: run {number}: {code}, {time.monotonic() - died:.1f} s after the death", flush=True)
        cluster.start(number % SERVERS)
        cluster.wait()
    print(f"{kind}: {done - len(failed)} of {done} runs with the same bits", flush=True)
    assert failed == {}, str(failed)
