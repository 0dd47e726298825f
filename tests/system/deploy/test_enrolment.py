"""From a running fleet of three to four: one command on the box, one at the operator, and nobody is restarted."""

import shutil
import signal

import numpy as np
import pytest
import yaml

from hushgrid.broker.enrolment.authority import request
from hushgrid.broker.enrolment.directory import FleetDirectory
from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.deployed_ring import rows
from tests.support.daemons.enrolled_fleet import Enrolled, enrolled

SUM = {
    "hushgrid": 1,
    "name": "sum",
    "problem": {"kind": "total", "data": {"devices": {"features": 8, "rows": 200}, "nodes": 3}},
    "algorithm": {"name": "sum", "rounds": 1},
    "privacy": {"mechanism": "gaussian", "adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 1.0,
                "delta": 1e-5},
}  # fmt: skip


def box(fleet, name, folder):
    """What `add` has written, beside the key that the box has made; the device starts."""
    place = fleet.directory / "nodes"
    for file in folder.iterdir():
        shutil.copyfile(file, place / file.name)
    shutil.copyfile(fleet.certs / f"{name}.key", place / f"{name}.key")
    return fleet.node(name)


@pytest.fixture
def sums(tmp_path, mosquitto_program, stack):
    """Three sensors whose rows are summed, and a coordinator that waits for the next run."""
    (tmp_path / "sum.yaml").write_text(yaml.safe_dump(SUM))
    fleet = Enrolled(tmp_path, mosquitto_program, stack, tmp_path / "sum.yaml")
    for i, name in enumerate(("n0", "n1", "n2")):
        sensor(fleet, name, i)
    return fleet


def sensor(fleet, name, seed):
    """A sensor of the first three: its own file, its rows, its certificate."""
    fleet.enrol(name)
    np.savez(fleet.directory / "nodes" / f"{name}.npz", **dict(zip("Ab", rows(seed=seed), strict=True)))
    tls = {key: f"../certs/{file}" for key, file in (("ca", "ca.crt"), ("cert", f"{name}.crt"), ("key", f"{name}.key"))}
    config = {
        "node": name, "fleet": "demo", "broker": fleet.url, "tls": tls, "state": str(fleet.state(name)),
        "data": f"{name}.npz", "labels": {"low": -1.0, "high": 1.0},
        "budget": {"epsilon": 20.0, "delta": 1e-3, "adjacency": {"replace-one-record": {"clip": 1.0}}},
        "allow": {"algorithms": ["sum"], "per_run": {"epsilon": 5.0}},
    }  # fmt: skip
    (fleet.directory / "nodes" / f"{name}.yaml").write_text(yaml.safe_dump(config))


def test_two_commands_until_device_four_answers_and_no_other_is_restarted(sums):
    fleet = sums
    others = [fleet.node(name) for name in ("n0", "n1", "n2")]
    coordinator = fleet.coordinator()
    coordinator.wait_for("the next run:")
    np.savez(fleet.directory / "nodes" / "n3.npz", **dict(zip("Ab", rows(seed=3), strict=True)))

    fleet.operator("request", "n3", "--out", fleet.certs)
    reload = f"{fleet.reload}; kill -HUP {coordinator.child.pid}"
    csr = ("--request", fleet.certs / "n3.csr")
    fleet.operator("add", fleet.path, "n3", "--data", "n3.npz", *csr, "--apply", reload)

    fourth = box(fleet, "n3", fleet.path / "n3")
    coordinator.wait_for("was read again")
    coordinator.child.send_signal(signal.SIGUSR1)
    fourth.wait_for(" done: ")
    coordinator.wait_for("the next run:", 2)
    assert "n0, n1, n2, n3" in coordinator.said
    for other in others:
        other.wait_for(" done: ", 2)
        assert other.said.count("ready on") == 1
        assert "away" not in other.said


def test_a_zone_of_its_own_answers_after_two_commands_and_the_other_boxs_new_file(tmp_path, mosquitto_program, stack):
    fleet = enrolled(tmp_path, mosquitto_program, stack)
    nodes = {z: fleet.node(z) for z in ZONES}
    coordinator = fleet.coordinator()
    coordinator.wait_for("the next run:")

    fleet.operator("request", "z4", "--out", fleet.certs)
    reload = f"{fleet.reload}; kill -HUP {coordinator.child.pid}"
    csr = ("--request", fleet.certs / "z4.csr")
    fleet.operator("add", fleet.path, "z4", "--zone", "9,10,14", *csr, "--apply", reload)

    assert {path.name for path in fleet.path.iterdir() if path.is_dir()} == {"broker", "z2", "z4"}
    nodes["z2"].end()
    shutil.copyfile(fleet.path / "z2" / "loads-z2.csv", fleet.directory / "nodes" / "loads-z2.csv")
    fleet.edit("nodes/z2.yaml", "[7, 8, 9, 10, 14]", "[7, 8]")
    again, fourth = fleet.node("z2"), box(fleet, "z4", fleet.path / "z4")
    coordinator.wait_for("was read again")
    coordinator.child.send_signal(signal.SIGUSR1)
    for node in (again, fourth, nodes["z1"], nodes["z3"]):
        node.wait_for(" done: ", 2 if node in nodes.values() else 1)
    assert nodes["z1"].said.count("ready on") == 1


def test_the_201st_box_is_enrolled_while_the_broker_runs(sums):
    fleet = sums
    node = fleet.node("n0")
    directory = FleetDirectory(fleet.path)
    authority = directory.authority()
    for k in range(200):
        directory.enrol(f"box-{k}", request(f"box-{k}", fleet.directory / "many"), authority)
    fleet.enrol("box-200")
    link = fleet.connection("box-200")
    assert link.connected
    assert "away" not in node.said
