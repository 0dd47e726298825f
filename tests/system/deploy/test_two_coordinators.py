"""Two coordinators with one certificate: the one that began first ends with one line, the other goes on."""

import shutil

from hushgrid.node.wire import Instance, Progress, Topics, encode
from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.enrolled_fleet import enrolled


def another(fleet):
    """A second machine with the coordinator's files, and a state of its own."""
    place = shutil.copytree(fleet.path, fleet.directory / "second")
    file = place / "coordinator.yaml"
    file.write_text(file.read_text().replace("hushgrid/coordinator", "hushgrid/second"))
    return file


def test_the_older_of_two_coordinators_ends_with_one_line_and_the_other_goes_on(tmp_path, mosquitto_program, stack):
    fleet = enrolled(tmp_path, mosquitto_program, stack)
    nodes = [fleet.node(z) for z in ZONES]
    first = fleet.coordinator()
    first.wait_for("the next run:")
    second = fleet.start("coordinator", str(another(fleet)))
    assert first.code() == 3
    lines = [line for line in first.said.splitlines() if "another one" in line]
    assert len(lines) == 1, first.said
    second.wait_for("the next run:")
    for node in nodes:
        node.wait_for(" done: ", 2)
    assert second.end() == 0


def test_a_coordinator_that_starts_again_is_not_stopped_by_what_it_said_before(tmp_path, mosquitto_program, stack):
    fleet = enrolled(tmp_path, mosquitto_program, stack)
    for z in ZONES:
        fleet.node(z)
    first = fleet.coordinator()
    first.wait_for("the next run:")
    first.kill()
    again = fleet.coordinator()
    again.wait_for("the next run:")
    assert again.end() == 0


def test_what_the_broker_retains_of_a_coordinator_that_is_gone_stops_no_new_one(tmp_path, mosquitto_program, stack):
    """Its card was replaced, and its clock was ahead, or the new one's is in 1970."""
    fleet = enrolled(tmp_path, mosquitto_program, stack)
    nodes = [fleet.node(z) for z in ZONES]
    gone = Progress(b"r" * 16, 28, "done", Instance(b"another ledger..", 5, 4e9))
    link = fleet.connection("coordinator")
    link.publish(Topics("demo").state("coordinator"), encode(gone), retain=True)
    link.close()
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for node in nodes:
        node.wait_for(" done: ")
