"""A fleet by `hushgrid fleet init --trust`, on mosquitto, where somebody says what he likes in everybody's name."""

import shutil

import pytest

from hushgrid.broker.servers.process import free_port
from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.enrolled_fleet import Enrolled
from tests.support.paths import DEPLOY
from tests.support.trust.daemons import Liar

pytestmark = pytest.mark.mosquitto


class Boxes(Enrolled):
    """Each device runs on the folder that the directory has for its box, beside its key; its state stays there."""

    def __init__(self, directory, program, stack, port):
        super().__init__(directory, program, stack, DEPLOY / "scenario.yaml", "--trust", everybody=port)
        for name in ZONES:
            self.operator("request", name, "--out", self.certs)
            self.operator("enrol", self.path, name, "--request", self.certs / f"{name}.csr")
            shutil.copytree(self.path / name, self.box(name))
            shutil.copy2(self.certs / f"{name}.key", self.box(name))

    def box(self, name):
        return self.directory / "box" / name

    def node(self, z):
        daemon = self.start("node", str(self.box(z) / f"{z}.yaml"))
        daemon.wait_for("ready on")
        return daemon

    def paid(self):
        return [len(self.spends_of(self.box(z) / f"state-{z}" / f"{z}.ledger")) for z in ZONES]


def test_a_generated_fleet_makes_its_run_and_refuses_every_forged_plan(tmp_path, mosquitto_program, stack):
    """The liar tells every lie about every message, the plan among them, to all: nobody joins another run, or pays."""
    port = free_port()
    fleet = Boxes(tmp_path, mosquitto_program, stack, port)
    nodes = [fleet.node(z) for z in ZONES]
    liar = Liar(f"mqtt://127.0.0.1:{port}", "demo", ZONES)
    stack.callback(liar.link.close)
    coordinator = fleet.coordinator("--once")
    liar.until(lambda: coordinator.child.poll() is not None)
    assert coordinator.code() == 0, coordinator.said
    assert any("all/coordinator" in topic for topic, _ in liar.heard)
    for daemon in nodes:
        daemon.wait_for(" done: ")
        assert daemon.said.count("joined run") == 1
        assert daemon.said.count("dropped a message: forged") == 1
        assert daemon.end() == 0
    assert fleet.paid() == [1, 1, 1]
