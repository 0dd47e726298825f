"""A ring of sensors that runs by itself with one of them away: those who are there learn without it."""

import json
from contextlib import ExitStack

import pytest

from tests.support.daemons.deployed_fleet import intervals, until
from tests.support.daemons.deployed_ring import SENSORS, ring

pytestmark = pytest.mark.mosquitto
WALK = (
    "  name: recal\n  rounds: 200                                 # activations: 50 of each sensor\n  walk: "
    "hamiltonian\n"
)
METHODS = {
    "token": "  name: recal\n  rounds: 60\n  walk: hamiltonian\n",
    "random": "  name: recal\n  rounds: 60\n  walk: random\n",
    "neighbours": "  name: dpp2\n  alpha: 1.0\n  beta: 0.25\n  rho: 0.1\n  rounds: 20\n",
    "star": "  name: ladmm\n  rho: 0.5\n  rounds: 20\n",
}


def made(directory, url, stack, method, quorum):
    fleet = ring(directory, url, stack)
    fleet.edit("scenario.yaml", WALK, METHODS[method])
    for name in SENSORS:
        fleet.edit(f"nodes/{name}.yaml", "algorithms: [recal]", "algorithms: [recal, dpp2, ladmm]")
    if method == "star":
        fleet.edit("scenario.yaml", "network: {kind: ring, nodes: 4} ", "# no network: ")
        fleet.edit("scenario.yaml", "rows: 200}} ", "rows: 200}, nodes: 4} ")
    path = fleet.directory / "coordinator.yaml"
    text = path.read_text().replace("wait_s: 60 ", "wait_s: 0.8 ").replace("silent_s: 10 ", "silent_s: 1 ")
    path.write_text(f"{text}\nrun: {{every: 4s}}\nquorum: {quorum}\n")
    return fleet


@pytest.mark.parametrize("method", METHODS)
def test_those_who_are_there_run_and_the_record_has_their_graph(method, tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "ring", mosquitto.url, stack, method, 3)
        nodes = {name: fleet.node(name) for name in ("n0", "n1", "n3")}
        coordinator = fleet.coordinator()
        rows = until(fleet, lambda rows: rows[-1]["outcome"] == "answer")
        assert (rows[-1]["absent"], rows[-1]["held"]) == ("n2", "")
        found = next((fleet.state("coordinator") / "runs").glob(f"*{rows[-1]['run'][:8]}.json"))
        record = json.loads(found.read_text())
        assert record["members"] == ["n0", "n1", "n3"]
        edges = [] if method == "star" else [("n0", "n1"), ("n0", "n3")]
        assert sorted(map(tuple, record.get("graph", []))) == edges
        for daemon in nodes.values():
            daemon.wait_for(" done: ")
        fleet.node("n2")
        until(fleet, lambda rows: rows[-1]["outcome"] == "answer" and not rows[-1]["absent"])
        assert coordinator.end() == 0


def test_parts_that_are_not_connected_make_no_run(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "ring", mosquitto.url, stack, "neighbours", 2)
        for name in ("n0", "n2"):
            fleet.node(name)
        fleet.coordinator()
        rows = until(fleet, lambda rows: rows)
        assert (rows[0]["outcome"], rows[0]["cause"]) == ("missed", "absent")
        assert "expected a connected graph" in rows[0]["reason"]


def test_fewer_than_the_quorum_make_no_run(tmp_path, mosquitto):
    with ExitStack() as stack:
        fleet = made(tmp_path / "ring", mosquitto.url, stack, "neighbours", 3)
        for name in ("n0", "n1"):
            fleet.node(name)
        fleet.coordinator()
        rows = until(fleet, lambda rows: rows)
        assert "2 of 4 there, expected 3" in rows[0]["reason"]
        assert not intervals(fleet)[0]["run"]
