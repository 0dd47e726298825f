"""The example fleets over TLS on each kind of broker, under the access lists that are written for it: nothing lacks."""

from contextlib import ExitStack

import pytest

from hushgrid.broker.enrolment.authority import DAY
from tests.support.daemons.deployed_fleet import ZONES, Fleet
from tests.support.daemons.deployed_ring import SENSORS, ring
from tests.support.transport.fleet_brokers import KINDS, started

WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)
DPP2 = "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n  rounds: 20\n"


def neighbours(fleet):
    """The ring's sensors, in rounds among neighbours in the place of the walk."""
    fleet.edit("scenario.yaml", WALK, DPP2)
    for name in SENSORS:
        fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2]")


def runs(tmp_path, kind, fleet, edit):
    """What the daemons of an example say in one run."""
    with ExitStack() as stack:
        directory, _ = started(tmp_path / "F", kind, fleet, stack)
        names = ZONES if fleet == "demo" else SENSORS
        made = (Fleet if fleet == "demo" else ring)(tmp_path / "deploy", directory.broker, stack)
        authority = directory.authority()
        (made.directory / "certs").mkdir(exist_ok=True)
        for name in ("coordinator", *names):
            authority.passing(name, made.directory / "certs", DAY)
        edit(made)
        nodes = [made.start("node", f"{name}.yaml") for name in names]
        for daemon in nodes:
            daemon.wait_for("ready on")
        coordinator = made.start("coordinator", "coordinator.yaml", "", "--once")
        assert coordinator.code() == 0, coordinator.said
        for daemon in nodes:
            daemon.wait_for(" done: ")
        return [coordinator.said, *(daemon.said for daemon in nodes)]


def refused(said):
    return [line for text in said for line in text.splitlines() if "refuses" in line or "access list" in line]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["star", "token", "neighbours"])
def test_the_example_runs_on_every_kind_of_broker_under_its_lists_and_nothing_is_refused(tmp_path, kind, pattern):
    fleet = "demo" if pattern == "star" else "ring"
    edit = neighbours if pattern == "neighbours" else lambda made: None
    assert refused(runs(tmp_path, kind, fleet, edit)) == []
