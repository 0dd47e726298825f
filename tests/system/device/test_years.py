"""Every command of docs/years.md, as it stands and in its order, on a Debian machine that boots."""

import re
import shutil
import subprocess

import pytest

from tests.support.daemons.booted_machine import Machine, a_run, able, base
from tests.support.daemons.wheelhouses import of_a_later_format
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/years.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh (\w+)\n(.*?)^```$", PAGE, re.M | re.S)

pytestmark = pytest.mark.skipif(bool(able("debootstrap")), reason=f"missing: {able('debootstrap')}")


def test_the_page_has_no_command_that_is_not_executed_here():
    assert [kind for kind, _ in BLOCKS] == [
        "checkout", "install", "look", "doctor", "update", "update", "accept", "certificates", "card", "remove",
    ]  # fmt: skip
    assert len(re.findall(r"^```", PAGE, re.M)) == 2 * len(BLOCKS) + 2  # and one block of yaml


def test_a_wheelhouse_is_made_as_the_page_says():
    (command,) = (text for kind, text in BLOCKS if kind == "checkout")
    try:
        subprocess.run(["sh", "-ec", command], cwd=ROOT, check=True)
        assert (ROOT / "wheelhouse/machine").read_text() == "aarch64 3.11\n"
        assert [*(ROOT / "wheelhouse/wheels").glob("numpy-*aarch64.whl")] != []
    finally:
        shutil.rmtree(ROOT / "wheelhouse", ignore_errors=True)


TAKES = """
sh new/deploy/install.sh node
sed -i 's/^2,21.7/2,21.9/' /etc/hushgrid/nodes/loads-z1.csv
"""


def test_the_commands_run_as_they_stand_and_the_fleet_goes_on(directory, house, tmp_path):
    root = directory / "years"
    machine = Machine.copied(root, base(directory))
    subprocess.run(["cp", "-a", house, root / "root/wheelhouse"], check=True)
    other = of_a_later_format(house, tmp_path / "new")
    subprocess.run(["cp", "-a", other, root / "root/new"], check=True)
    said = {}
    try:
        machine.boot()
        machine.run("echo '127.0.0.1 broker.example' >> /etc/hosts")
        for kind, text in BLOCKS:
            if kind == "checkout":
                continue
            if kind == "accept":  # what has happened before: the new release runs, and z1 has spent with it
                machine.run(f"cd /root\n{TAKES}")
                a_run(machine)
                refused = machine.run("sh /root/new/deploy/install.sh back", check=False).splitlines()
                assert "1 spends since would be forgotten" in refused[0]
                assert refused[1].endswith("goes on")
            if kind == "card":  # what has happened before: the card of z3 is a new one
                machine.run(
                    "systemctl stop hushgrid-node@z3; rm -rf /var/lib/hushgrid/z3; systemctl start hushgrid-node@z3 "
                    "|| true"
                )
                machine.wait_for("journalctl -u hushgrid-node@z3 -o cat", "mark")
            print(f"--- {kind}")
            said[kind] = machine.run(
                f"cd /root\n{text}", check=kind != "doctor"
            )  # its exit code says whether there is something to do
            print(said[kind])
            if kind == "install":
                machine.wait_for("journalctl -u hushgrid-coordinator -o cat", "the next run:")
            elif kind != "remove":
                machine.wait_for("systemctl show -P StatusText hushgrid-node@z3", "waits for a run")
                a_run(machine)
        assert all(z in said["look"] for z in ("z1", "z2", "z3", "hushgrid_"[:8]))
        assert "z1" in said["doctor"]
        assert "recorded as lost and spent" in said["accept"]
        assert machine.run("ls /opt; ls /var/lib/hushgrid").split() == ["coordinator", "z1", "z2", "z3"]
    finally:
        machine.shut_down()
