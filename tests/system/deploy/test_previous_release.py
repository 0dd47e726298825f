"""The release before and the one of today in one fleet, on a real broker: updated box by box, and not taken back."""

import pytest

from hushgrid.node.privacy.ledger_schema import FORMAT
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import Birth, decode_presence
from tests.support.daemons.deployed_fleet import ROOT, ZONES
from tests.support.daemons.previous_release import VERSION, previous_release

LOADS = {"z1": "2,21.7,12.7", "z2": "9,29.5,16.6", "z3": "6,11.2,7.5"}  #: one line of each zone's file

pytestmark = pytest.mark.mosquitto


class Mixed:
    """The example fleet with each box at a version of its own."""

    def __init__(self, fleet, before):
        self.fleet, self.before = fleet, before
        self.nodes, self.outcomes = {}, dict.fromkeys(ZONES, 0)

    def start(self, z, old):
        environment = self.before if old else {}
        self.nodes[z] = self.fleet.node(z, **environment)
        self.outcomes[z] = 0

    def coordinator(self, old):
        environment = self.before if old else {}
        return self.fleet.start("coordinator", "coordinator.yaml", "coordinator", "--once", **environment)

    def run(self, old):
        coordinator = self.coordinator(old)
        assert coordinator.code() == 0, coordinator.said
        for z, node in self.nodes.items():
            self.outcomes[z] += 1
            node.wait_for(" done: ", self.outcomes[z])

    def running(self):
        born = {topic.removeprefix(f"{ROOT}/state/"): decode_presence(p) for topic, p in self.fleet.retained().items()}
        return {z: birth.capabilities.version for z, birth in born.items() if isinstance(birth, Birth)}

    def end(self):
        for z, node in self.nodes.items():
            assert node.end() == 0, (z, node.said)


def test_a_fleet_is_updated_box_by_box_from_its_hub_on_and_every_run_between_is_done(fleet, tmp_path):
    mixed = Mixed(fleet, previous_release(tmp_path / "before"))
    for z in ZONES:
        mixed.start(z, old=True)
    mixed.run(old=True)
    for n, z in enumerate(ZONES):
        mixed.run(old=False)  # the hub with the boxes as they are
        assert mixed.nodes[z].end() == 0
        fleet.edit(f"nodes/loads-{z}.csv", LOADS[z], LOADS[z].replace(".", ".1", 1))
        mixed.start(z, old=False)
        mixed.run(old=False)  # the box's new loads cost once, at its new version
        assert mixed.running() == {other: RUNNING if ZONES.index(other) <= n else VERSION for other in ZONES}
    mixed.run(old=False)
    mixed.end()
    assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, 2)


@pytest.mark.parametrize("first", ["z1", "z3"])
def test_a_hub_of_the_release_before_refuses_a_newer_box_in_one_line_and_nothing_is_lost_until_it_is_updated(
    fleet, tmp_path, first
):
    mixed = Mixed(fleet, previous_release(tmp_path / "before"))
    for z in ZONES:
        mixed.start(z, old=True)
    mixed.run(old=True)
    assert mixed.nodes[first].end() == 0
    fleet.edit(f"nodes/loads-{first}.csv", LOADS[first], LOADS[first].replace(".", ".1", 1))
    mixed.start(first, old=False)
    hub = mixed.coordinator(old=True)
    assert hub.code() == 2, hub.said
    line = hub.said.splitlines()[-1]
    assert line == f"hushgrid: {first}: version: found {RUNNING}, expected {VERSION}, in its first two numbers"
    assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, 1)
    mixed.run(old=False)
    mixed.end()
    assert {z: len(fleet.spends(z)) for z in ZONES} == dict.fromkeys(ZONES, 1) | {first: 2}


def test_the_release_before_refuses_a_ledger_of_a_newer_format_in_one_line(fleet, tmp_path):
    mixed = Mixed(fleet, previous_release(tmp_path / "before"))
    for z in ZONES:
        mixed.start(z, old=True)
    mixed.run(old=True)
    assert mixed.nodes["z1"].end() == 0
    mixed.start("z1", old=False)  # brings the ledger to today's format
    assert mixed.nodes["z1"].end() == 0
    before = fleet.spends("z1")
    back = fleet.start("node", "z1.yaml", "z1", **mixed.before)
    assert back.code() == 2
    (line,) = back.said.splitlines()
    assert line.endswith(f"(format {FORMAT}), expected 'z1' (format 2 or older)")
    assert fleet.spends("z1") == before
    mixed.start("z1", old=False)
    mixed.run(old=False)
    mixed.end()
