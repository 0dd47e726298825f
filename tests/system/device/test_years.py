"""Every command of docs/years.md, as it stands and in its order, on a Debian machine that boots."""

import re
import shutil
import subprocess

import pytest

from tests.support.daemons.booted_machine import Machine, able, base
from tests.support.daemons.wheelhouses import changed
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/years.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh (\w+)\n(.*?)^```$", PAGE, re.M | re.S)

pytestmark = pytest.mark.skipif(bool(able()), reason=f"missing: {able()}")


def test_the_page_has_no_command_that_is_not_executed_here():
    assert [kind for kind, _ in BLOCKS] == [
        "checkout", "install", "look", "doctor", "update", "update", "certificates", "card", "remove",
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


def test_the_commands_run_as_they_stand_and_the_fleet_goes_on(directory, house, tmp_path):
    root = directory / "years"
    subprocess.run(["rm", "-rf", root], check=True)
    machine = Machine(root, base(directory))
    subprocess.run(["cp", "-a", house, root / "root/wheelhouse"], check=True)
    other = changed(house, tmp_path / "new", {"hushgrid/deploy/more.txt": ""})
    subprocess.run(["cp", "-a", other, root / "root/new"], check=True)
    said = {}
    try:
        machine.boot()
        machine.run("echo '127.0.0.1 broker.example' >> /etc/hosts")
        for kind, text in BLOCKS:
            if kind == "checkout":
                continue
            if kind == "card":  # what has happened before: the card of z3 is a new one
                machine.run(
                    "systemctl stop hushgrid-node@z3; rm -rf /var/lib/hushgrid/z3; systemctl start hushgrid-node@z3 || true"
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
                cursor = machine.cursor()
                machine.run("systemctl kill -s USR1 hushgrid-coordinator")
                script = f"journalctl -u hushgrid-coordinator -o cat --after-cursor '{cursor}'"
                assert " stopped" not in machine.wait_for(script, "the next run:")
        assert all(z in said["look"] for z in ("z1", "z2", "z3", "hushgrid_"[:8]))
        assert "z1" in said["doctor"]
        assert machine.run("ls /opt; ls /var/lib/hushgrid").split() == ["coordinator", "z1", "z2", "z3"]
    finally:
        machine.shut_down()
