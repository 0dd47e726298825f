"""The house stands as it was drawn: who imports whom, and what a small process does not pay for."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("kernels", "grid_cases", "node", "broker")  #: each may import itself and what stands before it
ROOMS = sorted(path for floor in FLOORS for path in (ROOT / floor).glob("*.py"))
#: What reads files, clocks, sockets, other processes or global randomness.
WORLD = {
    "asyncio", "builtins", "concurrent", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io", "logging",
    "mmap", "multiprocessing", "os", "paho", "pathlib", "pickle", "random", "secrets", "select", "selectors", "shutil",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "yaml",
}  # fmt: skip
#: In the mathematics: one thread of BLAS; the operating system's entropy, the default of the noise; and the compiler,
#: which is asked for by the environment and keeps its code in a directory named by the sources.
ALLOWED = {("__init__.py", "os"), ("noise.py", "os"), ("jit.py", "os"), ("jit.py", "pathlib")}
MODELLING = {"central.py", "zone_layout.py", "zone_model.py", "zone_solvers.py"}


def imports(room: Path) -> Iterator[tuple[str, bool]]:
    """(module, whether it is imported as soon as the room is) of every import; `from a import b` gives a and a.b."""
    tree = ast.parse(room.read_text(encoding="utf-8"))
    later = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.Lambda)
        or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{room.name}:{node.lineno}: a relative import"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            yield name, id(node) not in later


def named(room: Path) -> str:
    return f"{room.parent.name}/{room.name}"


def test_the_rooms_are_found():
    assert {room.parent.name for room in ROOMS} == set(FLOORS)
    assert len(ROOMS) > 20


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_a_room_imports_only_what_stands_before_it(room):
    above = FLOORS[FLOORS.index(room.parent.name) + 1 :]
    found = [name for name, _ in imports(room) if name.startswith(tuple(f"hushgrid.{floor}" for floor in above))]
    assert found == []


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_a_room_is_imported_by_its_full_name_only(room):
    assert [name for name, _ in imports(room) if name.split(".")[0] in FLOORS] == []


@pytest.mark.parametrize("room", [r for r in ROOMS if r.parent.name == "kernels"], ids=named)
def test_the_mathematics_touches_no_file_clock_socket_or_global_randomness(room):
    found = {name.split(".")[0] for name, _ in imports(room)} & WORLD
    assert {(room.name, name) for name in found} <= ALLOWED
    tree = ast.parse(room.read_text(encoding="utf-8"))
    drawn = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "np.random"}
    assert drawn <= {"Generator", "Philox"}  # keyed generators, never numpy's global one
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert calls & {"open", "print", "input", "exec", "eval"} == set()


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_cvxpy_is_imported_where_models_are_made_and_only_when_one_is(room):
    found = [at_once for name, at_once in imports(room) if name.split(".")[0] == "cvxpy"]
    assert found == [] or room.name in MODELLING
    assert not any(found), "cvxpy takes a second to import: import it in the function that needs it"


@pytest.mark.parametrize("heavy", ["matplotlib", "rich", "amqtt"])
def test_what_only_a_laptop_has_is_imported_only_when_it_is_used(heavy):
    assert [named(room) for room in ROOMS for name, now in imports(room) if now and name.split(".")[0] == heavy] == []


LAPTOP = ("cvxpy", "numba", "matplotlib", "rich", "amqtt", "networkx")


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import hushgrid.node.daemon, hushgrid.node.config", LAPTOP),
        ("import hushgrid.broker.coordinate", LAPTOP),
        ("import hushgrid.broker.cli", (*LAPTOP, "numpy", "scipy", "yaml", "paho", "msgspec")),
    ],
    ids=["node", "coordinator", "command line"],
)
def test_a_process_does_not_load_what_it_does_not_need(program, absent):
    code = f"{program}; import sys, json; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(json.loads(ended.stdout)) & set(absent) == set()


SENSOR = """
import sys, json
import numpy as np
from pathlib import Path
from hushgrid.node.allowance import Allowance
from hushgrid.node.assemble import make_plan
from hushgrid.node.config import Allow, load_device, scenario_from
from hushgrid.node.daemon import device_of
from hushgrid.node.driver import Driver
from hushgrid.node.gate import Entropy
from hushgrid.node.ledger import Ledger
from hushgrid.node.rows import public

place = Path(sys.argv[1])
np.savez(place / "rows.npz", A=np.eye(6, 4), b=np.array([1.0, -1.0] * 3))
(place / "node.yaml").write_text(
    "{node: n0, fleet: f, broker: 'mqtt://h', state: state, data: rows.npz,"
    " budget: {epsilon: 9.0, adjacency: {replace-one-record: {clip: 1.0}}}}"
)
device, outcome = device_of(load_device(place / "node.yaml"), "node.yaml")
scenario = scenario_from(
    {
        "hushgrid": 1, "name": "s", "network": {"kind": "path", "nodes": 2}, "algorithm": {"name": "recal", "rounds": 4},
        "problem": {"kind": "logistic", "data": {"devices": {"features": 4, "rows": 6}}, "row_bound": 1.0},
        "privacy": {"epsilon": 5.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }
)
_, plan = make_plan(scenario, public(scenario)[1])
device.check(plan)
ledger, run = Ledger(place / "n0.ledger", "n0"), bytes(16)
ledger.join(run, b"")
noise = Entropy()
allowance = Allowance("n0", ledger, run, plan, plan.terms, None, Allow(), simulated=False)
driver = Driver("n0", run, *device.machine(plan, run, ledger, noise, allowance), ledger)
assert driver.start() and len(ledger.spends(run)) == 1
ledger.close()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("kernels", ["numpy", "numba"])
def test_a_sensor_that_takes_a_step_loads_nothing_of_zones_and_numba_only_where_it_is_asked_for(kernels, tmp_path):
    if kernels == "numba":
        pytest.importorskip("numba")
    ended = subprocess.run(
        [sys.executable, "-c", SENSOR, str(tmp_path)], env=os.environ | {"HUSHGRID_KERNELS": kernels},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    loaded = set(json.loads(ended.stdout))
    forbidden = {*LAPTOP, "scipy", "clarabel", "hushgrid.grid_cases", "hushgrid.broker"}
    if kernels == "numba":
        forbidden -= {"numba", "scipy"}  # numba itself looks which scipy there is
    assert loaded & forbidden == set()
    assert kernels in loaded
