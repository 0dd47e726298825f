"""Every algorithm that a real device may run, through its daemons: what each device keeps of the run opens, and is
right.

The daemons are started once and serve one coordinator after the other.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.grid_cases.setpoints import released_keys, setpoints
from hushgrid.kernels.algorithms.base import Keys
from hushgrid.kernels.algorithms.registry import ALGORITHMS, of_patterns
from hushgrid.lab.examples import examples
from hushgrid.node.config.device import load_device
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.kind import KIND as POWER_FLOW
from hushgrid.node.problems.records.kind import KIND as RECORDS
from tests.support.daemons.attacked_device import Target
from tests.support.daemons.deployed_fleet import PATIENCE
from tests.support.daemons.small_daemons import (
    FEATURES,
    SENSORS,
    Centre,
    Raw,
    committed,
    copied,
    on_rows,
    on_zones,
    outcome,
    outcome_file,
    pair,
    ring,
    summed_rows,
)

AROUND = {"z": "mean", "x": "common"}  #: where a machine of a star has what its node keeps
#: Rounds by pattern: a token that walks at random is to have been everywhere.
ROUNDS = {"token": 80, "neighbours": 6, "star": 6}


def on_sensors(name: str, keys: Keys, **more: Any) -> Raw:
    """A guarded example among the sensors; private minimisers have a part of their price that no noise pays."""
    return on_rows(name, ROUNDS[ALGORITHMS[name].pattern], 200.0, **dict(keys) | more)


SENSED: dict[str, Raw] = {
    f"{name}, {k + 1}": on_sensors(name, keys)
    for name in RECORDS.algorithms
    for k, keys in enumerate(examples(ALGORITHMS[name])["guarded"])
} | {
    f"{name}, cycle": on_rows(name, 20, 50.0, **examples(ALGORITHMS[name])["guarded"][0], walk="hamiltonian")
    for name in of_patterns(("token",))
}
SENSED["sum"] = summed_rows(50.0)
ZONED: dict[str, Raw] = {
    f"{name}, mode {mode}": on_zones(mode, 6, name=name)
    for name in POWER_FLOW.algorithms
    for mode in ALGORITHMS[name].modes
    if not mode.startswith("output")
}


class Fleets:
    """Both fleets on one broker, and their coordinator."""

    def __init__(self, directory: Path, url: str, stack: ExitStack) -> None:
        self.rows = ring(directory, url, stack)
        self.zones = pair(directory, url, stack)
        everybody = [*self.rows.values(), *self.zones.values()]
        for target in everybody:
            target.start(ready=False)
        for target in everybody:
            target.daemon.wait_for("ready on")
        self.centre = Centre(directory / "centre", url, stack)
        self.runs: dict[str, int] = dict.fromkeys([*self.rows, *self.zones], 0)

    def of(self, scenario: Raw) -> dict[str, Target]:
        return self.zones if scenario["problem"]["kind"] == "zones" else self.rows

    def run(self, scenario: Raw) -> dict[str, Target]:
        """One run to its end, known by every device."""
        targets = self.of(scenario)
        for target in targets.values():
            outcome_file(target).unlink(missing_ok=True)
        self.centre.finish(scenario)
        for name, target in targets.items():
            self.runs[name] += 1
            target.daemon.wait_for("joined run", self.runs[name])
        return targets


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleets]:
    directory = tmp_path_factory.mktemp("fleets")
    kind = "mosquitto" if find_mosquitto() else "embedded"
    with brokers.start(kind, directory / "broker") as broker, ExitStack() as stack:
        yield Fleets(directory, broker.url, stack)


def test_every_algorithm_stands_here():
    assert {raw["algorithm"]["name"] for raw in (SENSED | ZONED).values()} == set(ALGORITHMS)


@pytest.mark.parametrize("which", ZONED)
def test_a_zone_keeps_the_set_points_of_its_last_committed_state(which, fleets, tmp_path):
    for name, target in fleets.run(ZONED[which]).items():
        found = outcome(target)["z"]
        config = load_device(target.file)
        zone = config.kind.device(config, str(target.file))
        assert isinstance(zone, Zone)
        with closing(copied(target, tmp_path / name)) as ledger:
            _, left, status = committed(target, ledger)
        told = left.get("released", np.zeros(0))  # of a dispatch at least cost: what the coordinator has recovered
        keys = released_keys(zone.case, zone.layout) if told.size else zone.model.keys
        assert bool(told.size) == ("consensus-admm" in which)
        expected = [row[2] for row in setpoints(zone.case, keys, told if told.size else left["z"])]
        assert status == "done"
        assert np.all(np.isfinite(found))
        assert np.any(found)
        assert found.tolist() == [float(v) for v in expected]


@pytest.mark.parametrize("which", SENSED)
def test_a_sensor_keeps_the_model_of_its_last_committed_state(which, fleets, tmp_path):
    """Its own vectors; a device of a walk that knows the token of its end keeps that too."""
    declared = ALGORITHMS[SENSED[which]["algorithm"]["name"]]
    ends = 0
    for name, target in fleets.run(SENSED[which]).items():
        found = outcome(target)
        with closing(copied(target, tmp_path / name)) as ledger:
            state, expected, status = committed(target, ledger)
        tokens = {key for key in found if key.startswith("token_")}
        ends += bool(tokens)
        assert status == "done"
        names = found.keys() - tokens
        assert names == {key for key in expected if not key.startswith("token_")}
        assert names & ({"z"} if "addends" in declared.sharing else {*declared.recorded, "x"})
        for key in names:
            assert found[key].shape == (FEATURES,)
            assert np.all(np.isfinite(found[key]))
            of = AROUND.get(key, key) if declared.pattern == "star" else key
            of = of if hasattr(state, of) else "last"  # an iterate that is what the node has said
            assert found[key].tolist() == getattr(state, of).tolist()
        for key in tokens:  # a receipt is not committed: a device may know more than its ledger, never less
            assert found[key].tolist() == expected[key].tolist()
        assert any(np.any(found[key]) for key in names)
    assert bool(ends) == (declared.pattern == "token")


def test_a_sensor_that_the_walk_has_never_visited_keeps_nothing_and_says_so(fleets, tmp_path):
    raw = on_rows("recal", 4, 50.0, walk=[0, 1, 0, 1])
    targets = fleets.run(raw)
    for name in ("n2", "n3"):
        targets[name].daemon.wait_for(" stopped: over without this device's part")
        assert not outcome_file(targets[name]).exists()
    for name in ("n0", "n1"):
        assert np.any(outcome(targets[name])["y"])
    assert tuple(targets) == SENSORS


def test_the_daemons_that_served_all_of_these_end_in_order_with_whole_ledgers(fleets):
    for target in [*fleets.rows.values(), *fleets.zones.values()]:
        assert target.daemon.child.poll() is None, target.daemon.said
        assert target.daemon.end() == 0
        assert target.daemon.child.wait(PATIENCE) == 0
        done = target.ledger_command("verify")
        assert done.returncode == 0, done.stderr
