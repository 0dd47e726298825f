"""What a small process does not pay for: the modules that it loads."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.layers import LAPTOP, MODULES, reached


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import hushgrid.node.runtime.daemon, hushgrid.node.config.scenario", (*LAPTOP, "cryptography")),
        ("import hushgrid.broker.coordinator.daemon", (*LAPTOP, "cryptography")),
        ("import hushgrid.cli.main", (*LAPTOP, "numpy", "scipy", "yaml", "paho", "msgspec")),
        (
            "import hushgrid.cli.owner.ledger, hushgrid.cli.owner.doctor, hushgrid.cli.operator.status",
            (*LAPTOP, "scipy", "clarabel"),
        ),
    ],
    ids=["node", "coordinator", "command line", "looking at a device with rows"],
)
def test_a_process_does_not_load_what_it_does_not_need(program, absent):
    code = f"{program}; import sys, json; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(json.loads(ended.stdout)) & set(absent) == set()


SENSOR = """
import sys, json
import numpy as np
from pathlib import Path
from hushgrid.cli.main import make_parser
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.config.planning import make_plan
from hushgrid.node.schema.sections import Allow
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.records.device import public

make_parser(["node"])
place = Path(sys.argv[1])
np.savez(place / "rows.npz", A=np.eye(6, 4), b=np.array([1.0, -1.0] * 3))
(place / "node.yaml").write_text(
    "{node: n0, fleet: f, broker: 'mqtt://localhost', state: state, data: rows.npz,"
    " labels: {classes: 2},"
    " budget: {epsilon: 9.0, adjacency: {replace-one-record: {clip: 1.0}}}}"
)
device = (config := load_device(place / "node.yaml")).kind.device(config, "node.yaml")
scenario = scenario_from(
    {
        "hushgrid": 1, "name": "s", "network": {"kind": "path", "nodes": 2},
        "algorithm": {"name": "recal", "rounds": 4},
        "problem": {"kind": "logistic", "data": {"devices": {"features": 4, "rows": 6}}, "row_bound": 1.0},
        "privacy": {"epsilon": 5.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }
)
plan = make_plan(scenario, public(scenario)[1])
device.check(plan)
ledger, run = Ledger(place / "n0.ledger", "n0"), bytes(16)
ledger.join(run, b"")
noise = SystemNoise()
budget_check = BudgetCheck("n0", ledger, run, plan.algorithm, plan.terms, None, Allow(), simulated=False)
driver = Driver("n0", run, *device.machine(plan, run, ledger, noise, budget_check), ledger)
assert driver.start() and len(ledger.spends.rows(run)) == 1
ledger.close()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
def test_a_sensor_that_takes_a_step_loads_nothing_of_zones_and_numba_only_where_it_is_asked_for(kernels, tmp_path):
    if kernels == "numba":
        pytest.importorskip("numba")
    ended = subprocess.run(
        [sys.executable, "-c", SENSOR, str(tmp_path)],
        env=os.environ | {"HUSHGRID_KERNELS": kernels},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = set(json.loads(ended.stdout))
    forbidden = {*LAPTOP, "scipy", "clarabel", "cryptography", "numpy.random"}
    if kernels == "numba":
        forbidden -= {"numba", "scipy", "numpy.random"}  # numba itself looks which scipy there is
    assert loaded & forbidden == set()
    ours = {name for name in loaded & set(MODULES) if MODULES[name].name != "__init__.py"}
    found = [m for m in MODULES if m.startswith("hushgrid.kernels.algorithms.") or m.endswith(".kind")]  # by a registry
    plan_of_the_script = {"hushgrid.cli.main", "hushgrid.node.config.scenario", "hushgrid.node.config.planning"}
    assert ours <= plan_of_the_script.union(*map(reached, ["hushgrid.cli.owner.node", *found]))
    assert not [name for name in loaded if name.startswith("hushgrid.grid_cases.")]
    assert kernels in loaded
