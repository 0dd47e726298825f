"""The part of `make device-test` that takes a minute: this machine's own system boots beside itself, and gets the
fleet.
"""

import subprocess

import pytest

from tests.support.daemons.booted_machine import (
    ALL,
    COORDINATOR,
    INSTALL,
    NODES,
    ZONES,
    ThisMachine,
    a_run,
    able,
    process,
    said,
    shows,
)

PYTHON = "/usr/bin/python3"  #: the one that a device has
HOUSE = "/opt/house"

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.xdist_group("install"),
    pytest.mark.skipif(bool(able("unshare", "mosquitto")), reason=f"missing: {able('unshare', 'mosquitto')}"),
]


@pytest.fixture(scope="module")
def machine(house, tmp_path_factory):
    """Up, with the fleet installed."""
    code = "import ensurepip, platform, sys; print(platform.machine(), '%d.%d' % sys.version_info[:2])"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    if done.stdout != (house / "machine").read_text():
        pytest.skip(f"{PYTHON} is {done.stdout.strip() or 'none with ensurepip'}, the wheelhouse is for another one")
    made = ThisMachine(tmp_path_factory.mktemp("machine"), f"{house}:{HOUSE}")
    try:
        made.boot()
        made.run(INSTALL.format(house=HOUSE))
        yield made
    finally:
        made.shut_down()


def test_a_fleet_is_installed_without_a_network_and_does_a_run(machine):
    assert len(machine.run("cat /proc/net/dev").splitlines()) == 3  # loopback alone
    for unit in ALL:
        machine.wait_for(f"systemctl is-active {unit}", "active")
    machine.wait_for(f"journalctl -u {COORDINATOR} -o cat", "the next run:")
    for z in ZONES:
        machine.wait_for(f"cat /var/lib/hushgrid/{z}/{z}.setpoints.csv || true", "quantity,element")
    assert machine.run("systemctl list-units --failed --plain --no-legend 'hushgrid-*'") == ""


def test_no_signal_but_term_and_int_ends_a_unit(machine):
    before = {unit: process(machine, unit) for unit in ALL}
    for signal in ("HUP", "USR2", "PIPE", "ALRM", "QUIT"):
        for unit in ALL:
            machine.run(f"systemctl kill --kill-who=main -s {signal} {unit}")
    a_run(machine)
    assert {unit: process(machine, unit) for unit in ALL} == before


def test_a_broker_and_a_mark_that_are_away_are_waited_for(machine):
    cursor = machine.cursor()
    marks = "/var/lib/hushgrid-marks/z1"
    machine.run(f"systemctl stop mosquitto; mv {marks} /root/marks; systemctl restart {NODES[0]} || true")
    assert "is gone; its owner runs 'hushgrid ledger accept" in said(machine, NODES[0], cursor, "mark")
    machine.wait_for(f"systemctl show -P StatusText {NODES[1]}", "waits for the broker")
    assert "activating" in shows(machine, NODES[0])
    machine.run(f"rm -rf {marks}; mv /root/marks {marks}; systemctl start mosquitto")
    machine.wait_for(f"systemctl show -P StatusText {NODES[0]}", "waits for a run")
    a_run(machine)


def test_what_is_uninstalled_leaves_ledgers_and_marks(machine):
    count = "cd /var/lib; ls hushgrid/z1/*.ledger hushgrid-marks/*/* | wc -l"
    before = machine.run(count)
    machine.run(f"sh {HOUSE}/deploy/install.sh uninstall")
    assert machine.run(count) == before
    assert machine.run("ls /etc/systemd/system | grep hushgrid || true") == ""
