"""`hushgrid watch` beside real daemons: a death, the figures, a device's page, and who may look."""

import base64
import http.client
import os
import pty
import re
import shutil
import ssl
import subprocess
import time
from contextlib import closing

import pytest

from hushgrid.broker.watch.listener import Listener
from hushgrid.broker.watch.model import Model
from hushgrid.node.config.watch import WatchConfig
from tests.support.daemons.deployed_fleet import (
    HUSHGRID,
    PATIENCE,
    ZONES,
    certificates,
    finishes_a_run,
    tried,
)
from tests.support.daemons.watched import read, until, watch
from tests.support.paths import DEPLOY

pytestmark = pytest.mark.mosquitto

DEATH_S = 8.0  #: within which a killed daemon is gone on the page: its will comes after 5 s


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack):
    return tried(tmp_path / "deploy", mosquitto_program, stack)


def test_a_killed_daemon_is_gone_when_its_will_comes_and_the_figures_say_so(fleet, tmp_path, stack):
    daemons = {z: fleet.node(z) for z in ZONES}
    finishes_a_run(fleet, list(daemons.values()))
    _, port = watch(tmp_path, stack, "--broker", fleet.url, "--fleet", "demo")
    until(port, "/metrics", lambda text: text.count("hushgrid_up{") == 4 and 'z2"} 1' in text)
    daemons["z2"].kill()
    figures, took = until(port, "/metrics", lambda text: 'hushgrid_up{fleet="demo",node="z2"} 0' in text)
    assert took < DEATH_S
    page = read(port, "/")
    assert re.search(r'<tr class="gone"><td class="node">z2', page)
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=figures, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_the_run_shows_what_a_real_coordinator_says_of_run_and_answer(fleet, tmp_path, stack):
    daemons = [fleet.node(z) for z in ZONES]
    _, port = watch(tmp_path, stack, "--broker", fleet.url, "--fleet", "demo")
    assert "no run has been seen yet" in read(port, "/run")
    coordinator = fleet.coordinator()
    page, _ = until(port, "/run", lambda page: "<dt>State</dt><dd>done</dd>" in page and "<dt>Outcome</dt>" in page)
    assert "<dd>consensus-admm (star)</dd>" in page
    assert "<dt>Served</dt>" in page
    assert "<dt>Nodes</dt><dd>3</dd>" in page
    assert "hushgrid_setpoints_age_seconds" in read(port, "/metrics")
    assert [daemon.child.poll() for daemon in (*daemons, coordinator)] == [None] * 4


def test_promtool_takes_the_alert_rules():
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "rules", DEPLOY / "prometheus" / "alerts.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 rules found" in done.stdout


def test_a_devices_page_needs_no_broker_and_says_what_was_asked_what_it_cost_and_what_is_left(fleet, tmp_path, stack):
    daemons = [fleet.node(z) for z in ZONES]
    file = str(fleet.directory / "nodes" / "z1.yaml")
    _, port = watch(tmp_path, stack, "--device", file, http_at=None)
    assert "Nobody yet." in read(port, "/device") or "no ledger yet" in read(port, "/device")
    finishes_a_run(fleet, daemons)
    page, _ = until(port, "/device", lambda page: "consensus-admm</td>" in page)
    assert "15 of epsilon 20 left" in page
    assert "one run: consensus-admm; epsilon" in page  # its owner's consent
    page, _ = until(port, "/device", lambda page: "<td>bus 1</td>" in page)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", "/")
        assert connection.getresponse().headers["Location"] == "/device"
    assert "21.7" not in page  # of its loads
    assert [daemon.child.poll() for daemon in daemons] == [None] * 3  # its ledger was read from a copy


def test_others_can_look_only_by_tls_and_with_the_password(fleet, tmp_path, stack):
    certificates(tmp_path / "certs", "watch")
    login = tmp_path / "login"
    login.write_text("operator:correct horse battery\n")
    login.chmod(0o600)
    files = ("--certificate", f"{tmp_path}/certs/broker.crt", "--key", f"{tmp_path}/certs/broker.key")
    options = (*files, "--password-file", str(login), "--name", "127.0.0.1")
    _, port = watch(tmp_path, stack, "--broker", fleet.url, "--fleet", "demo", *options, http_at="0.0.0.0:0")
    trust = ssl.create_default_context(cafile=f"{tmp_path}/certs/ca.crt")

    def code(login, host="127.0.0.1"):
        with closing(http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=PATIENCE)) as connection:
            word = base64.b64encode(login.encode()).decode()
            connection.request("GET", "/", headers={"Authorization": f"Basic {word}", "Host": host})
            return connection.getresponse().status

    assert code("operator:correct horse battery") == 200
    assert code("operator:wrong") == 401
    assert code("operator:correct horse battery", "evil.example") == 421


@pytest.mark.parametrize("command", [("watch",), ("status", "--watch")])
def test_on_a_terminal_the_table_is_kept_up_to_date(fleet, stack, command):
    fleet.node("z1")
    leader, follower = pty.openpty()
    stack.callback(os.close, leader)
    child = subprocess.Popen(
        [*HUSHGRID, *command, "--broker", fleet.url, "--fleet", "demo"], stdin=follower, stdout=follower,
        stderr=follower, env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )  # fmt: skip
    stack.callback(child.wait)
    stack.callback(child.kill)
    os.close(follower)
    said = ""

    def wait_for(pattern):
        nonlocal said
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, said):
            assert time.monotonic() < deadline, said
            said += os.read(leader, 65536).decode(errors="replace")

    wait_for(r"z1 +idle")
    fleet.node("z3")
    wait_for(r"z3 +idle")
    child.terminate()
    assert child.wait(PATIENCE) == 0


def test_two_watchers_of_one_identity_are_named_as_the_reason_why_the_broker_is_away(fleet, stack):
    models = [Model("demo", fleet.url) for _ in range(2)]
    for model in models:
        listener = Listener(WatchConfig(fleet="demo", broker=fleet.url), model)
        listener.start()
        stack.callback(listener.stop)
    with models[0].changed:
        assert models[0].changed.wait_for(lambda: "is another program connected as watch?" in models[0].why, PATIENCE)


WRONG = [
    (("--http", "here"), "--http: found 'here', expected HOST:PORT"),
    (("--http", "0.0.0.0:0", "--broker", "mqtt://127.0.0.1:1", "--fleet", "x"), "which others can reach, expected"),
    (("--http", "127.0.0.1:0", "--fleet", "x"), "found one of --broker, --fleet and --config"),
    (("--http", "127.0.0.1:0", "--broker", "http://x", "--fleet", "x"), "broker: found 'http://x'"),
    (("--http", "127.0.0.1:0", "--device", "/nowhere.yaml"), "/nowhere.yaml"),
    (("--http", "127.0.0.1:0", "--key", "k", "--broker", "mqtt://x", "--fleet", "x"), "expected both"),
    (("--name", "host"), "--name: found without --http"),
]


@pytest.mark.parametrize(("options", "line"), WRONG, ids=[line for _, line in WRONG])
def test_what_is_wrong_is_one_line(options, line):
    done = subprocess.run([*HUSHGRID, "watch", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


@pytest.mark.parametrize(("text", "mode"), [("operator:short", 0o600), ("nobody", 0o600), ("a:0123456789ab", 0o644)])
def test_a_login_that_is_weak_or_that_everybody_may_read_is_not_taken(tmp_path, text, mode):
    login = tmp_path / "login"
    login.write_text(text)
    login.chmod(mode)
    done = subprocess.run(
        [*HUSHGRID, "watch", "--http", "127.0.0.1:0", "--broker", "mqtt://x", "--fleet", "x", "--password-file", login],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
