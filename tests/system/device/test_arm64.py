"""A zone on arm64, installed from the wheels for it, and two zones and a coordinator on x86-64, in one run."""

import csv
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.broker.servers.process import free_port
from tests.support.daemons import arm64_root
from tests.support.daemons.deployed_fleet import HUSHGRID, Fleet, broker
from tests.support.paths import DEPLOY

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.skipif(bool(arm64_root.able()), reason=f"missing: {arm64_root.able()}"),
]


@pytest.fixture(scope="module")
def root():
    """With the program installed, from the wheelhouse alone."""
    directory = Path(os.environ.get("HUSHGRID_DEVICE_DIR", "/var/tmp/hushgrid-device"))
    directory.mkdir(parents=True, exist_ok=True)
    made = arm64_root.unpacked(directory)
    with ExitStack() as stack:
        stack.enter_context(arm64_root.Emulation())
        shutil.rmtree(made / "root/house", ignore_errors=True)
        shutil.rmtree(made / "opt/hushgrid", ignore_errors=True)
        subprocess.run(["sh", DEPLOY / "wheelhouse.sh", made / "root/house", "aarch64", "3.11"], check=True)
        for name in ("dev", "proc"):
            subprocess.run(["mount", "--bind", f"/{name}", made / name], check=True)
            stack.callback(subprocess.run, ["umount", "-l", made / name], check=True)
        (made / "tmp").chmod(0o1777)
        # Packages that are not configured have no users: installed as into an image, which is this root itself.
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HUSHGRID_ROOT": "/.", "HUSHGRID_EXTRA": "zones"}
        command = ["unshare", "--net", "chroot", made, "sh", "/root/house/deploy/install.sh", "node"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield made


def test_a_zone_on_arm64_and_zones_on_x86_agree_in_one_run(root, mosquitto_program):
    place = root / "tmp/fleet"
    shutil.rmtree(place, ignore_errors=True)
    with ExitStack() as stack:
        port = free_port()
        fleet = Fleet(place, f"mqtt://127.0.0.1:{port}", stack)
        broker(fleet, mosquitto_program, "mosquitto-try.conf", "1883 127.0.0.1", f"{port} 127.0.0.1")
        # cvxpy is not on the small device: its zone's model is made elsewhere.
        zones = "[[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]"
        made = [*HUSHGRID, "case", "zones", "case14", "--zones", zones, "--export", str(place / "nodes")]
        subprocess.run(made, check=True)
        fleet.edit("nodes/z1.yaml", "  zone: [1, 2, 3, 4, 5]", "  zone: [1, 2, 3, 4, 5]\n  model: z1.npz")
        fleet.edit("coordinator.yaml", "silent_s: 10", "silent_s: 60")
        same = root / str(root).lstrip("/")  # inside, a path of this machine leads to the same place
        same.parent.mkdir(parents=True, exist_ok=True)
        same.unlink(missing_ok=True)
        same.symlink_to("/")
        nodes = {z: fleet.node(z) for z in ("z2", "z3")}
        fleet.program = ["chroot", str(root), "/opt/hushgrid/bin/hushgrid"]
        nodes["z1"] = fleet.start("node", "z1.yaml", "z1")
        fleet.program = HUSHGRID
        nodes["z1"].wait_for("ready on")
        coordinator = fleet.coordinator("--once")
        assert coordinator.code() == 0, coordinator.said
        for node in nodes.values():
            node.wait_for(" done: ")
        machine = subprocess.run(["chroot", root, "uname", "-m"], capture_output=True, text=True, check=True).stdout
        assert machine.strip() == "aarch64"
        with open(place / "lib/hushgrid/z1/z1.setpoints.csv", newline="") as file:
            assert all(0.9 < float(r["value"]) < 1.1 for r in csv.DictReader(file) if r["quantity"] == "v")
        print(f"\nz1 on {machine.strip()}, z2 and z3 here: {coordinator.said.strip().splitlines()[-1]}")
        assert [node.end() for node in nodes.values()] == [0, 0, 0]
