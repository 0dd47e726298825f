"""A fleet on a Debian machine that boots, installed from its wheelhouse without a network or a compiler; and what goes
wrong.

Each fault gives a row of the table that is printed at the end: what systemd shows, what the journal says, and what
comes back by itself once the cause is gone. Nothing but the cause is taken away: no unit is started by hand.
"""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.daemons.booted_machine import (
    ALL,
    COORDINATOR,
    INSTALL,
    NODES,
    ZONES,
    Machine,
    a_run,
    able,
    base,
    process,
    said,
    shows,
)
from tests.support.daemons.wheelhouses import of_a_later_format
from tests.support.paths import ROOT

ROWS: list[tuple[str, str, str, str]] = []
CARD = "/var/lib/hushgrid/z2"
ERRORS = "errors=remount-ro"  #: as Debian mounts what it installs

pytestmark = pytest.mark.skipif(bool(able("debootstrap")), reason=f"missing: {able('debootstrap')}")


@pytest.fixture(scope="module")
def machine(directory, house):
    """Up, with the fleet installed and its first run done. At the end the table is printed."""
    root = directory / "machine"
    made = Machine.copied(root, base(directory))
    subprocess.run(["cp", "-a", house, root / "root/house"], check=True)
    card = root / CARD.lstrip("/")
    image = directory / "card.img"
    try:
        card.mkdir(parents=True)
        subprocess.run(["truncate", "-s", "24M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        subprocess.run(["mount", "-o", f"loop,{ERRORS}", image, card], check=True)
        seconds = made.boot()
        print(f"\nbooted in {seconds:.1f} s: {made.run('systemctl --version').splitlines()[0]}")
        yield made
    finally:
        made.shut_down()
        subprocess.run(["umount", card], check=False)
        for row in [("fault", "what systemd shows", "what the journal says", "what comes back by itself"), *ROWS]:
            print("| " + " | ".join(row) + " |")


def test_three_units_a_coordinator_and_a_broker_come_up_from_the_wheelhouse_and_do_a_run(machine):
    assert "lo:" in (links := machine.run("cat /proc/net/dev"))
    assert len(links.splitlines()) == 3  # loopback alone: no network
    assert machine.run("command -v cc gcc c++ make || true") == ""
    machine.run(INSTALL.format(house="/root/house"))
    for unit in ALL:
        machine.wait_for(f"systemctl is-active {unit}", "active")
    machine.wait_for(f"journalctl -u {COORDINATOR} -o cat", "the next run:")
    for z in ZONES:
        machine.wait_for(f"cat {CARD[:-2]}{z}/{z}.setpoints.csv || true", "quantity,element")
    assert machine.run("systemctl --failed --plain --no-legend") == ""
    ROWS.append(("installed, enabled", shows(machine, NODES[0]), "a run is done, set-points of three zones", "-"))


@pytest.mark.parametrize("signal", ["HUP", "USR1", "USR2", "PIPE", "ALRM", "QUIT"])
def test_no_signal_but_term_and_int_ends_a_unit(machine, signal):
    before = {unit: process(machine, unit) for unit in ALL}
    cursor = machine.cursor()
    for unit in ALL:
        machine.run(f"systemctl kill --kill-who=main -s {signal} {unit}")
    machine.run("sleep 2")
    assert {unit: process(machine, unit) for unit in ALL} == before
    own = [line for line in machine.journal(NODES[0], cursor).splitlines() if line.startswith("z1: ")]
    if signal == "USR1":
        said(machine, COORDINATOR, cursor, "the next run:")
    a_run(machine)
    journal = own[0] if own else "nothing"
    ROWS.append((signal, shows(machine, NODES[0]), journal, "it never left; the next run is done"))


def test_reload_reads_the_data_again(machine):
    cursor = machine.cursor()
    machine.run(
        "cd /etc/hushgrid/nodes; sed 's/^2,21.7/2,21.9/' loads-z1.csv > new; install -o root -g hushgrid -m 0640 new "
        "loads-z1.new; rm new; mv loads-z1.new loads-z1.csv"
    )
    machine.run(f"systemctl reload {NODES[0]}")
    line = said(machine, NODES[0], cursor, "data version")
    ROWS.append(("systemctl reload, new loads", shows(machine, NODES[0]), line, "-"))
    a_run(machine)


def test_half_written_loads_keep_what_was_there(machine):
    cursor = machine.cursor()
    path = "/etc/hushgrid/nodes/loads-z1.csv"
    machine.run(f"cp -p {path} /root/whole.csv; head -c 25 /root/whole.csv > {path}; systemctl reload {NODES[0]}")
    line = said(machine, NODES[0], cursor, "stay as they were")
    a_run(machine)
    shown = shows(machine, NODES[0])
    cursor = machine.cursor()
    machine.run(f"cat /root/whole.csv > {path}")
    a_run(machine)
    ROWS.append(
        (
            "half-written loads",
            shown,
            line,
            "runs go on with the loads of before; the whole file is read before the next run",
        )
    )


def test_no_broker_at_boot_is_waited_for(machine):
    machine.run("systemctl disable mosquitto")
    machine.shut_down()
    seconds = machine.boot()
    for unit in ALL:
        machine.wait_for(f"systemctl is-active {unit}", "active")
    machine.wait_for(f"systemctl show -P StatusText {NODES[0]}", "waits for the broker")
    shown, journal = shows(machine, NODES[0]), machine.run(f"journalctl -b -u {NODES[0]} -o cat")
    lines = [line for line in journal.splitlines() if line.startswith("z1: ")]
    assert [process(machine, unit)[2] for unit in ALL] == ["0"] * 4
    cursor = machine.cursor()
    machine.run("systemctl enable --now mosquitto")
    said(machine, COORDINATOR, cursor, "the next run:")
    ROWS.append(
        (
            "no broker at boot",
            f"{shown} (booted in {seconds:.1f} s)",
            lines[-1] if lines else "nothing",
            "all connect by themselves, and the run is done",
        )
    )


def test_no_name_service_at_boot_is_waited_for(machine):
    machine.run("sed -i '/broker.example/d' /etc/hosts")
    machine.shut_down()
    machine.boot()
    for unit in ALL:
        machine.wait_for(f"systemctl is-active {unit}", "active")
    machine.wait_for(f"systemctl show -P StatusText {NODES[0]}", "waits for the broker")
    machine.run("sleep 5")
    shown = shows(machine, NODES[0])
    lines = [x for x in machine.run(f"journalctl -b -u {NODES[0]} -o cat").splitlines() if x.startswith("z1: ")]
    assert [process(machine, unit)[2] for unit in ALL] == ["0"] * 4
    cursor = machine.cursor()
    machine.run("echo '127.0.0.1 broker.example' >> /etc/hosts")
    said(machine, COORDINATOR, cursor, "the next run:")
    ROWS.append(
        (
            "no name service at boot",
            shown,
            lines[-1] if lines else "nothing",
            "all connect by themselves, and the run is done",
        )
    )


def test_a_mark_whose_disk_is_away_is_waited_for(machine):
    cursor = machine.cursor()
    marks = "/var/lib/hushgrid-marks/z1"
    machine.run(f"mv {marks} /root/marks; systemctl restart {NODES[0]} || true")
    line = said(machine, NODES[0], cursor, "mark")
    machine.run("sleep 7")
    shown = shows(machine, NODES[0])
    assert "activating" in shown
    machine.run(f"rm -rf {marks}; mv /root/marks {marks}")
    comes_back(machine, NODES[0])
    ROWS.append(
        (
            "mark disk away",
            shown,
            line,
            "the unit starts again every 5 s; with the disk it is up, and the next run is done",
        )
    )


def test_a_full_disk_stops_and_goes_on(machine):
    cursor = machine.cursor()
    loads = "/etc/hushgrid/nodes/loads-z2.csv"
    try:
        machine.run(f"dd if=/dev/zero of={CARD}/filler bs=1k 2>/dev/null || true; sed -i 's/^9,29.5/9,29.6/' {loads}")
        machine.run(f"systemctl kill -s USR1 {COORDINATOR}")
        line = said(machine, NODES[1], cursor, "expected")
        machine.run("sleep 12")
        shown = shows(machine, NODES[1])
    finally:
        machine.run(f"rm {CARD}/filler")
    comes_back(machine, NODES[1])
    ROWS.append(("disk full", shown, line, "up again by itself once there is room, and the next run is done"))


def comes_back(machine, unit):
    """By itself, and a run is done."""
    machine.wait_for(f"systemctl show -P StatusText {unit}", "waits for a run")
    machine.run("sleep 7")  # a run that was under way without it has ended, and a unit that fails again would have
    machine.wait_for(f"systemctl show -P StatusText {unit}", "waits for a run")
    a_run(machine)


def test_a_card_that_is_read_only_stops_and_goes_on(machine):
    cursor = machine.cursor()
    try:
        machine.run(f"systemctl stop {NODES[1]}")  # a file system that is written to cannot be made read-only
        remount(machine, "ro")
        machine.run(f"systemctl start {NODES[1]} || true")
        line = said(machine, NODES[1], cursor, "expected")
        machine.run("sleep 12")
        shown = shows(machine, NODES[1])
    finally:
        remount(machine, "rw")
    comes_back(machine, NODES[1])
    ROWS.append(("card read-only", shown, line, "up again by itself once it can be written, and the next run is done"))


def remount(machine, how):
    """The file system of the card itself, which every name space sees."""
    subprocess.run(["mount", "-o", f"remount,{how}", machine.root / CARD.lstrip("/")], check=True)


def test_a_card_that_turns_read_only_in_a_run_stops_and_goes_on_once_it_is_checked(machine):
    """As a file system does when its card fails under it: nothing but a start of the machine brings it back."""
    cursor = machine.cursor()
    machine.run(f"systemctl kill --kill-who=main -s STOP {NODES[2]}")  # the run stays under way until it goes on
    machine.run(f"systemctl kill -s USR1 {COORDINATOR}")
    machine.wait_for(f"systemctl show -P StatusText {NODES[1]}", "in run")
    device, card = card_of(machine)
    with suppress(OSError):  # it is read-only by then
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("a card that fails")
    machine.run(f"systemctl kill --kill-who=main -s CONT {NODES[2]}")
    line = said(machine, NODES[1], cursor, "expected")
    assert "Read-only file system, expected to write the ledger: nothing was released" in line
    machine.run("sleep 12")
    shown = shows(machine, NODES[1])
    assert "Read-only file system, expected a writable ledger" in shown
    image = machine.root.parent / "card.img"
    machine.lose_power()
    subprocess.run(["umount", card], check=True)
    assert subprocess.run(["e2fsck", "-p", image], capture_output=True).returncode == 1  # errors, mended
    subprocess.run(["mount", "-o", f"loop,{ERRORS}", image, card], check=True)
    machine.boot()
    comes_back(machine, NODES[1])
    again = "the unit starts again every 5 s; the next start of the machine checks the card, and the next run is done"
    ROWS.append(("card turns read-only in a run", shown, line, again))


def card_of(machine):
    """The block device of the card, and where it is mounted."""
    card = machine.root / CARD.lstrip("/")
    done = subprocess.run(["findmnt", "-no", "SOURCE", card], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).name, card


def test_an_expired_certificate_is_told_and_a_new_one_is_taken(machine):
    cursor = machine.cursor()
    machine.run(
        "cd /root/fleet; openssl req -new -key z3.key -subj /CN=z3 -out z3.csr; printf "
        "'extendedKeyUsage=clientAuth\n' > z3.ext; "
        "openssl x509 -req -in z3.csr -CA ca.crt -CAkey ca.key -days -1 -extfile z3.ext -out old.crt 2>/dev/null; "
        f"cat old.crt > /etc/hushgrid/certs/z3.crt; systemctl restart {NODES[2]} || true"
    )
    machine.run("sleep 8")
    shown = shows(machine, NODES[2])
    own = [x for x in machine.journal(NODES[2], cursor).splitlines() if x.startswith(("z3: ", "hushgrid: "))]
    machine.run("cat /root/fleet/z3.crt > /etc/hushgrid/certs/z3.crt")
    machine.wait_for(f"systemctl show -P StatusText {NODES[2]}", "waits for a run")  # nobody has started it again
    a_run(machine)
    again = "the new certificate is taken by itself at the next attempt, and the next run is done"
    ROWS.append(("certificate expired", shown, own[-1] if own else "nothing", again))


def test_a_clock_of_1970_is_waited_out(machine):
    """The unit sees a false wall clock, its clock of running time is true; then the clock is set, while it runs."""
    library = machine.run("ls /usr/lib/*/faketime/libfaketime.so.1").strip()
    machine.run(
        f"mkdir -p /run/systemd/system/{NODES[2]}.service.d; printf '[Service]\\nEnvironment=LD_PRELOAD={library} "
        "FAKETIME_TIMESTAMP_FILE=/etc/hushgrid/clock FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 "
        f"FAKETIME_DONT_FAKE_MONOTONIC=1\\n' > /run/systemd/system/{NODES[2]}.service.d/clock.conf; echo '@1970-01-01 "
        "00:01:00' > /etc/hushgrid/clock; chmod 644 /etc/hushgrid/clock; systemctl daemon-reload"
    )
    cursor = machine.cursor()
    machine.run(f"systemctl restart {NODES[2]} || true; sleep 6")
    shown = shows(machine, NODES[2])
    own = [x for x in machine.journal(NODES[2], cursor).splitlines() if x.startswith(("z3: ", "hushgrid: "))]
    machine.run("echo '+0' > /etc/hushgrid/clock")
    cursor = machine.cursor()
    machine.wait_for(f"systemctl show -P StatusText {NODES[2]}", "waits for a run")
    a_run(machine)
    machine.run(
        f"rm /run/systemd/system/{NODES[2]}.service.d/clock.conf; systemctl daemon-reload; systemctl restart {NODES[2]}"
    )
    ROWS.append(
        (
            "clock of 1970",
            shown,
            own[-1] if own else "nothing",
            "connects by itself once the clock is set, and the next run is done",
        )
    )


def a_release(machine, directory):
    """Where a copy of a wheelhouse stands in the machine."""
    subprocess.run(["cp", "-a", directory, machine.root / f"root/{directory.name}"], check=True)
    return f"/root/{directory.name}/deploy/install.sh"


DAEMON = (ROOT / "node/runtime/daemon.py").read_text(encoding="utf-8")
DEFECTS = {
    "does not start": "def main(*_, **__):\n    raise SystemExit('a defect of this release')\n",
    "fails once its ledger has a newer "
    "format": DAEMON.replace("    service.unit.ready()\n", "    raise Stopped('a defect of this release')\n"),
    "does not find the broker": DAEMON.replace("link_for(member, "
                                               "config.broker,", "link_for(member, 'mqtts://127.0.0.1:1',"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_release_that_fails_goes_back_by_itself(machine, house, tmp_path, defect):
    before, text = machine.run("readlink /opt/hushgrid/current").strip(), DEFECTS[defect]
    assert text != DAEMON
    files = {"hushgrid/node/runtime/daemon.py": text}
    script = a_release(machine, of_a_later_format(house, tmp_path / defect.replace(" ", "-"), files))
    told = machine.run(f"HUSHGRID_WAIT=20 sh {script} node 2>&1", check=False).splitlines()
    assert told[-1].endswith("goes on")
    assert machine.run("readlink /opt/hushgrid/current").strip() == before
    assert [process(machine, unit)[0] for unit in ALL] == ["active"] * 4
    a_run(machine)
    again = "the release before, with its ledgers, and the next run is done"
    ROWS.append((f"a release that {defect}", shows(machine, NODES[0]), "; ".join(told[-2:]), again))


def test_a_good_release_is_taken_and_the_one_before_is_had_back(machine, house, tmp_path):
    before = machine.run("readlink /opt/hushgrid/current").strip()
    script = a_release(machine, of_a_later_format(house, tmp_path / "next"))
    machine.run(f"sh {script} node")
    assert machine.run("readlink /opt/hushgrid/current").strip() != before
    a_run(machine)
    machine.run(f"sh {script} back")
    assert machine.run("readlink /opt/hushgrid/current").strip() == before
    a_run(machine)


def test_what_is_uninstalled_leaves_ledgers_and_marks(machine):
    ledgers = machine.run(
        "umount " + CARD + " || true; cd /var/lib; sha256sum hushgrid/z1/*.ledger hushgrid-marks/*/* | wc -l"
    )
    machine.run("sh /root/house/deploy/install.sh uninstall")
    assert machine.run("cd /var/lib; sha256sum hushgrid/z1/*.ledger hushgrid-marks/*/* | wc -l") == ledgers
    assert machine.run("ls /opt; ls /etc/systemd/system | grep hushgrid || true").strip() == ""
