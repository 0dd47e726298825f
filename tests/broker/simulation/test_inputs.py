"""`run` with arrays and a networkx graph in place of files: the same run, checked as files are."""

import networkx as nx
import numpy as np
import pytest
import yaml

from hushgrid.broker.simulation.front import Result, run
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from

rng = np.random.default_rng(1)
PAIRS = [(A := rng.normal(size=(20 + i, 3)), np.where(A[:, 0] > 0, 1.0, -1.0)) for i in range(4)]
RING = nx.cycle_graph(4)
BASE = {
    "hushgrid": 1,
    "name": "given",
    "seed": 3,
    "problem": {"kind": "logistic", "row_bound": 1.0, "data": {"normalize": "unit-rows"}},
    "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 5.0},
}
TOKEN = {"algorithm": {"name": "recal", "rounds": 12, "walk": "hamiltonian"}}
ROUNDS = {"algorithm": {"name": "dgd", "rounds": 4, "step_size": 0.1}}


@pytest.mark.runs
@pytest.mark.parametrize("how", [TOKEN, ROUNDS], ids=["token", "neighbours"])
def test_arrays_and_a_graph_give_the_run_that_files_give(how, tmp_path):
    names = []
    for i, (A, b) in enumerate(PAIRS):
        names.append(str(tmp_path / f"n{i}.npz"))
        np.savez(names[-1], A=A, b=b)
    of_files = (
        BASE
        | how
        | {
            "network": {"kind": "ring", "nodes": 4},
            "problem": BASE["problem"] | {"data": {"files": names, "normalize": "unit-rows"}},
        }
    )
    from_files, from_arrays = run(of_files), run(BASE | how, data=PAIRS, graph=RING)
    assert from_files.solution.keys() == from_arrays.solution.keys()
    assert all(from_files.solution[k].tobytes() == from_arrays.solution[k].tobytes() for k in from_files.solution)
    assert from_files.history == from_arrays.history


@pytest.mark.runs
def test_what_numpy_takes_for_an_array_may_be_given_and_is_left_as_it_is():
    before = [(A.copy(), b.copy()) for A, b in PAIRS]
    lists = run(BASE | TOKEN, data=((A.tolist(), b.astype(int).tolist()) for A, b in PAIRS), graph=RING)
    arrays = run(BASE | TOKEN, data=PAIRS, graph=RING)
    assert lists.solution["x"].tobytes() == arrays.solution["x"].tobytes()
    assert all(
        np.array_equal(x, y) for now, then in zip(PAIRS, before, strict=True) for x, y in zip(now, then, strict=True)
    )


@pytest.mark.runs
def test_the_run_directory_says_what_was_given_and_not_the_rows(tmp_path):
    private = {key: value for key, value in BASE.items() if key != "seed"} | TOKEN
    result = run(private, out=tmp_path / "run", data=PAIRS, graph=RING)
    assert result.privacy.upheld is True
    said = yaml.safe_load((tmp_path / "run/scenario.yaml").read_text())
    assert said["problem"]["data"] == {
        "arrays": [[20, 3], [21, 3], [22, 3], [23, 3]],
        "split": "even",
        "normalize": "unit-rows",
        "label": -1,
        "pool": 1,
    }
    assert said["network"] == {"kind": "edges", "nodes": 4, "edges": [[0, 1], [0, 3], [1, 2], [2, 3]]}
    assert Result.load(tmp_path / "run").summary == result.summary
    scenario_from(said)
    again = run(tmp_path / "run/scenario.yaml", data=PAIRS)
    assert again.nodes == 4
    with pytest.raises(
        InputError, match=r"scenario\.yaml: problem\.data\.arrays: found the shapes of arrays alone, expected"
    ):
        run(tmp_path / "run/scenario.yaml")


def test_a_graph_may_stand_beside_files_and_arrays_beside_a_network():
    synthetic = {"problem": {"kind": "least-squares", "data": {"synthetic": {"rows": 5, "features": 2}}}}
    plain = {"hushgrid": 1, "name": "g", "algorithm": {"name": "iadmm", "rho": 1.0, "rounds": 4, "variant": "none"}}
    assert run(plain | synthetic, graph=nx.star_graph(3)).nodes == 4
    own = plain | {"problem": {"kind": "least-squares"}, "network": {"kind": "path", "nodes": 4}}
    assert run(own, data=PAIRS).nodes == 4


WIDE = [*PAIRS[:3], (np.ones((4, 5)), np.ones(4))]
HOLE = [*PAIRS[:2], (np.array([[1.0, np.nan]]), np.ones(1)), PAIRS[3]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": PAIRS[:3]}, "scenario: problem.data: found 3 nodes, expected 4 (network.nodes)"),
        ({"data": WIDE}, "scenario: problem.data.arrays[3]: A: found 5 columns, expected 3 as the first array"),
        ({"data": HOLE}, "scenario: problem.data.arrays[2]: A[0, 1]: found nan, expected a finite number"),
        ({"data": [(A, b + 4) for A, b in PAIRS]}, "scenario: problem.data.arrays[0]: b[0]: found label"),
        (
            {"data": [(A, b[1:]) for A, b in PAIRS]},
            "scenario: problem.data.arrays[0]: found A (20, 3) and b (19,), expected",
        ),
        (
            {"data": [(A.astype(str), b) for A, b in PAIRS]},
            "scenario: problem.data.arrays[0]: A: found type <U32, expected numbers",
        ),
        (
            {"data": [(np.ones(3), np.ones(3))]},
            "data[0]: found A (3,) and b (3,), expected a pair (A, b) for each node",
        ),
        ({"data": [np.ones((3, 3))]}, "data[0]: too many values to unpack"),
        ({"data": [([[1, 2], [3]], [1, 1])]}, "data[0]: setting an array element"),
        ({"data": 7}, "data: found int, expected a pair (A, b) for each node"),
        (
            {"data": PAIRS, "set": {"problem.data.files": ["a.npz"]}},
            "scenario: problem.data: found files, arrays, expected one of",
        ),
        (
            {"data": PAIRS, "graph": RING, "set": {"network.radius": 1.0}},
            "scenario: network.radius: found 1.0, expected none",
        ),
        ({"graph": nx.DiGraph(RING)}, "graph: found a directed graph, expected an undirected one"),
        ({"graph": nx.relabel_nodes(RING, {0: "a"})}, "graph: found node 'a', expected 0..3 (networkx.convert_node"),
        ({"graph": [[0, 1]]}, "graph: found list, expected an undirected networkx graph"),
        ({"data": PAIRS, "graph": nx.empty_graph(4)}, "scenario: network: found 4 parts"),
    ],
)
def test_what_is_wrong_is_one_line(given, said):
    with pytest.raises(InputError) as error:
        run(BASE | TOKEN, **({"graph": RING} | given))
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_it_is_given_once():
    with pytest.raises(InputError, match="network: found a section and graph=, expected one of them"):
        run(BASE | TOKEN | {"network": {"kind": "ring", "nodes": 4}}, data=PAIRS, graph=RING)
    made = scenario_from(BASE | TOKEN | {"network": {"kind": "ring", "nodes": 4}})
    with pytest.raises(InputError, match="found overrides of a checked Scenario"):
        run(made, data=PAIRS)


def test_zones_take_no_arrays():
    zones = {
        "hushgrid": 1,
        "name": "z",
        "problem": {"kind": "zones", "case": "case14", "zones": 3},
        "algorithm": {"name": "ladmm", "rounds": 1},
    }
    with pytest.raises(InputError, match=r"problem\.data: unknown key"):
        run(zones, data=PAIRS)
