"""Whole runs at least cost: they reach the central optimum, price it, serve the load, and say so."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.kernels.errors import InputError
from tests.support.runs import background_run
from tests.support.scenarios.least_cost import PRIVATE, scenario, with_loads_times

#: Central optimum of the relaxation, $/h; most rounds; power that leaves each zone, MW (PGLib-OPF v23.07).
KNOWN = {
    "case14": (2175.70, 60, (88.29, -53.51, -34.69)),
    "case30": (6662.16, 90, (105.91, -49.06, -56.75)),
    "case118": (96335.86, 90, (-3.18, -715.56, 726.11)),
    "case300": (550002.4, 120, (354.2, -116.1, -179.6, -53.6)),
}
PRICES = {  # $/MWh of buses
    "case14": {4: 8.894, 5: 8.738, 6: 8.745, 7: 8.899, 14: 9.109},
    "case118": {15: 28.335, 24: 27.504, 65: 26.218, 68: 25.767},
}
CASES = ["case14", "case30", "case118", pytest.param("case300", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def of():
    """The undisturbed run of each case without privacy and without the AC step, made when it is asked for."""
    known = {}

    def found(case):
        if case not in known:
            known[case] = run(scenario(case, ac="none"))
        return known[case]

    return found


# --- the optimum ---


@pytest.mark.runs
@pytest.mark.parametrize("case", CASES)
def test_the_zones_reach_the_central_optimum_in_few_rounds(case, of):
    found, (optimum, most, _) = of(case), KNOWN[case]
    assert found.stopped_because == "tolerance"
    assert found.rounds_done <= most
    assert found.objective == pytest.approx(optimum, rel=5e-4)
    assert 0 <= found.gap <= 3e-4
    assert found.bound <= optimum * (1 + 1e-6)
    assert found.disagreement_mw <= 0.3
    assert found.objective - found.optimality_gap == pytest.approx(optimum, rel=1e-5)
    assert found.quality.verdict == "solved"


@pytest.mark.runs
@pytest.mark.parametrize("case", CASES)
def test_what_leaves_each_zone_is_the_references(case, of):
    expected = KNOWN[case][2]
    (_, rows), of_column = of(case).tables["balance"], of(case).tables["balance"][0].index("interchange_mw")
    assert [row[of_column] for row in rows] == pytest.approx(
        list(expected), abs=max(2.0, 0.015 * max(map(abs, expected)))
    )


@pytest.mark.runs
@pytest.mark.parametrize("case", PRICES)
def test_a_price_is_the_dual_of_the_bus_own_balance(case, of):
    for bus, price in PRICES[case].items():
        assert of(case).prices[str(bus)] == pytest.approx(price, abs=0.05)


@pytest.mark.runs
@pytest.mark.parametrize("case", ["case14", "case30"])
def test_every_load_is_served_and_the_tables_add_up(case, of):
    found, network = of(case), load(case)
    total = network.buses.p_d.sum() * network.base_mva
    assert found.load_mw == pytest.approx(total)
    assert found.served_mw == pytest.approx(total)
    assert (found.unserved_mw, found.spilled_mw, found.slack_mvar) == (0.0, 0.0, 0.0)
    tables = {
        name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in found.tables.items()
    }
    assert sum(r["p_mw"] for r in tables["generation"]) == pytest.approx(found.generation_mw, abs=0.01)
    assert sum(r["cost_per_h"] for r in tables["generation"]) == pytest.approx(found.objective, abs=0.01)
    for r in tables["balance"]:  # generation - load - losses - shunts = what leaves; the halves of ties' losses aside
        assert r["served_mw"] == r["load_mw"]
    assert len(tables["lines"]) == len(network.lines)
    assert len(tables["buses"]) == len(network.buses)
    assert {r["gen"] for r in tables["generation"]} == set((network.generators.rows + 1).tolist())
    assert {r["source"] for name in tables for r in tables[name]} == {"relaxed"}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("factor", "rounds", "cost", "mw", "mvar"), [(1.6, 200, 4066.02, 43.91, 59.24), (3.0, 400, None, 402.60, 140.16)]
)
def test_loads_beyond_all_capacity_end_in_a_run_that_says_what_is_not_served(factor, rounds, cost, mw, mvar, tmp_path):
    """At three times the loads the way there is a matter of last bits: 118 to 262 rounds by six kernels of one BLAS."""
    raw = scenario("case14", ac="none")
    raw["algorithm"]["rounds"] = rounds
    raw["problem"]["case"] = with_loads_times("case14", factor, tmp_path)
    found = run(raw)
    assert found.stopped_because == "tolerance"
    assert found.unserved_mw == pytest.approx(mw, abs=0.5)
    assert found.slack_mvar == pytest.approx(mvar, abs=0.5)
    generation = sum(row[found.tables["generation"][0].index("cost_per_h")] for row in found.tables["generation"][1])
    assert cost is None or generation == pytest.approx(cost, abs=0.5)


def test_rounds_used_up_are_no_agreement():
    raw = scenario("case14", ac="none")
    raw["algorithm"]["rounds"] = 6
    found = run(raw)
    assert (found.stopped_because, found.quality.verdict, found.rounds_done) == ("rounds", "not-converged", 6)
    assert found.disagreement_mw > 1.0


@pytest.mark.runs
@pytest.mark.parametrize("solver", ["ecos", "ipopt"])
def test_other_solvers_reach_the_same_dispatch(solver, of):
    pytest.importorskip({"ecos": "ecos", "ipopt": "casadi"}[solver])
    found = run(scenario("case14", ac="none", solver=solver))
    ours = of("case14")
    assert found.objective == pytest.approx(ours.objective, rel=1e-3)
    assert found.prices == pytest.approx(ours.prices, abs=0.05)  # the tolerance of the prices themselves
    for name in ("p_mw",):
        k = ours.tables["generation"][0].index(name)
        apart = [a[k] - b[k] for a, b in zip(ours.tables["generation"][1], found.tables["generation"][1], strict=True)]
        assert np.max(np.abs(apart)) <= 1e-3 * ours.generation_mw


# --- privacy ---


@pytest.mark.runs
def test_a_private_run_serves_its_noisy_load_within_a_twentieth_of_a_percent_of_their_optimum():
    raw = scenario("case14", private=True, ac="none", loads={"nonzero": "case"}) | {"seed": 5}
    found = run(raw)
    assert found.served_mw >= 0.98 * found.load_mw
    assert 0 <= found.optimality_gap + 0.01 <= 5e-4 * found.objective + 0.01
    assert found.load_mw != pytest.approx(259.0, abs=1e-6)


@pytest.mark.runs
def test_each_node_answers_once_and_only_where_load_may_be(tmp_path):
    raw = scenario("case14", private=True, ac="none", loads={"nonzero": "case"}) | {"seed": 5}
    found = run(raw | {"run": {"record": "trajectory"}})
    case = load("case14")
    loaded = {str(b) for b in case.buses.numbers[case.buses.p_d != 0]}
    assert {p: account.answers for p, account in found.privacy.per_node.items()} == {"z1": 1, "z2": 1, "z3": 1}
    assert found.privacy.spent.epsilon == pytest.approx(5.0, rel=1e-3)
    (columns, rows) = found.tables["balance"]
    bus_rows = found.tables["buses"][1]
    assert len(bus_rows) == 14
    assert loaded < {str(row[0]) for row in bus_rows}  # there are buses without load, which carry no noise
    assert sum(row[columns.index("load_mw")] for row in rows) == pytest.approx(found.load_mw, abs=0.01)


@pytest.mark.runs
def test_faults_and_crashes_change_no_bit():
    raw = scenario("case14", private=True, ac="none") | {"seed": 5}
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.03, "seed": 1}
    background_run.assert_same_bits(run(raw), run(raw | {"run": {"faults": faults}}))


# --- what contradicts itself ---

WRONG = {
    "objective": ({"problem": {"objective": "shedding"}}, "problem.objective: found shedding, expected cost"),
    "mode": ({"privacy": {"mode": "objective"}}, "privacy.mode: found objective, expected input"),
    "local_updates": ({"algorithm": {"local_updates": 2}}, "algorithm.local_updates: unknown key"),
    "ac": ({"problem": {"ac": "zones"}}, "problem.ac: found 'zones', expected one of"),
    "voll": ({"problem": {"voll": 0}}, "problem.voll: found 0, expected"),
    "loads": ({"problem": {"loads": {"nonzero": {"p": [99], "q": []}}}}, "loads.nonzero.p: found bus 99, expected"),
    "relaxation": ({"algorithm": {"relaxation": 2.0}}, "algorithm.relaxation: found 2.0, expected"),
    "published": ({"algorithm": {"variant": "published"}}, "algorithm.variant"),
}


@pytest.mark.parametrize(("over", "said"), WRONG.values(), ids=WRONG)
def test_a_scenario_that_contradicts_itself_is_refused_in_one_line(over, said):

    raw = scenario("case14", private=True)
    for key, value in over.items():
        raw[key] = raw[key] | value
    with pytest.raises(InputError) as refused:
        run(raw)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_papers_method_has_no_costs():

    raw = scenario("case14", private=True, objective="cost")
    raw["algorithm"] = {"name": "ladmm", "rounds": 5}
    with pytest.raises(
        InputError, match=r"problem\.objective: found cost, expected shedding \(algorithm.name: ladmm\)"
    ):
        run(raw | {"privacy": dict(PRIVATE)})


# --- a warm start ---


@pytest.mark.runs
def test_a_run_that_begins_where_another_ended_needs_few_rounds_and_finds_the_same_kind_of_answer(tmp_path):
    cold = run(scenario(private=True, ac="none") | {"seed": 5}, out=tmp_path / "cold")
    warm = run(scenario(private=True, ac="none") | {"seed": 6, "run": {"warm_start": str(tmp_path / "cold")}})
    assert warm.rounds_done <= cold.rounds_done / 2
    assert warm.quality.verdict == "solved"
    assert 0 <= warm.optimality_gap + 0.5 <= 5e-4 * warm.objective + 0.5
    assert warm.load_mw != cold.load_mw


@pytest.mark.runs
def test_it_begins_only_where_a_run_of_the_same_zones_ended(tmp_path):
    run(scenario(private=True, ac="none") | {"seed": 5}, out=tmp_path / "cold")
    other = scenario("case14", 2, private=True, ac="none") | {"run": {"warm_start": str(tmp_path / "cold")}}
    with pytest.raises(InputError, match=r"run\.warm_start: .*found .*expected a run of consensus-admm|of the same"):
        run(other)
    with pytest.raises(InputError, match=r"run\.warm_start: .*found no state, expected a run of consensus-admm"):
        run(scenario(private=True, ac="none") | {"run": {"warm_start": str(tmp_path)}})
    shedding = scenario(private=True)
    shedding["algorithm"] = {"name": "ladmm", "rounds": 3}
    with pytest.raises(InputError, match=r"run\.warm_start: found .*, expected none \(algorithm\.name: ladmm\)"):
        run(shedding | {"run": {"warm_start": str(tmp_path / "cold")}})


def test_without_an_AC_dispatch_both_prices_are_the_relaxations(of):
    found = of("case14")
    assert found.prices == found.prices_relaxed
    columns, rows = found.tables["buses"]
    at = [columns.index(name) for name in ("price_per_mwh", "price_relaxed")]
    assert [row[at[0]] for row in rows] == [row[at[1]] for row in rows]
