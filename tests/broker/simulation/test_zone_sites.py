"""Zones in two levels end to end in one process: the bits of one level, what is paid, what travels, what is refused."""

import json
from math import inf, nan

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.entries import Entries
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.levels import Move, Point, SiteMember
from hushgrid.lab.attacks.attack import attack
from tests.support.runs.background_run import assert_same_bits
from tests.support.runs.zone_levels import LAPLACE, LARGE, THREE, TWO, assert_same_run, scenario

DAY = LAPLACE | {"adjacency": {"day": {"energy_mwh": 1.0, "power_factor": 0.9}}}


@pytest.mark.runs
def test_zones_in_two_sites_take_the_steps_of_one_level_bit_by_bit():
    levels, flat = (run(scenario(problem, record="trajectory")) for problem in (TWO, {}))
    assert levels.stopped_because == "tolerance"
    assert_same_run(levels, flat)
    for key in ("objective", "gap", "bound", "disagreement_mw", "prices", "quality", "rounds_done"):
        assert levels.summary[key] == flat.summary[key]
    assert levels.privacy == flat.privacy


@pytest.mark.runs
@pytest.mark.parametrize(
    ("problem", "sites"),
    [
        (LARGE, THREE),
        ({}, {"sites": [["z1"], ["z2"], ["z3"]]}),  # a site each: nothing is averaged in one
    ],
)
def test_so_do_those_of_other_cases_and_deals(problem, sites):
    assert_same_run(*(run(scenario(problem | more)) for more in (sites, {})))


@pytest.mark.runs
def test_so_does_a_run_that_begins_where_another_has_ended(tmp_path):
    first = run(scenario(), out=tmp_path / "first")
    levels, flat = (run(scenario(problem, warm_start=str(tmp_path / "first"))) for problem in (TWO, {}))
    assert_same_run(levels, flat)
    assert levels.rounds_done < first.rounds_done / 2


@pytest.mark.runs
def test_and_a_plan_over_periods():
    horizon = {"horizon": {"periods": 3}}
    assert_same_run(*(run(scenario(horizon | problem, DAY)) for problem in (TWO, {})))


@pytest.mark.runs
@pytest.mark.parametrize("seed", range(3))
def test_loss_repeats_reordering_and_crashes_of_every_role_change_no_bit(seed):
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.02, "seed": seed}
    rough, calm = run(scenario(faults=faults)), run(scenario())
    assert_same_bits(rough, calm)
    assert [node.answers for node in rough.privacy.per_node.values()] == [1, 1, 1]


@pytest.mark.runs
def test_sites_cost_no_epsilon_and_a_second_run_none_at_all(tmp_path):
    """In mode input the loads are perturbed once; all that a site does is post-processing."""
    flat = run(scenario({}))
    first, second = (run(scenario(), state=tmp_path / "state") for _ in range(2))
    for name, node in first.privacy.per_node.items():
        assert node.spent == flat.privacy.per_node[name].spent
        assert second.privacy.per_node[name].answers == 0
        assert second.privacy.per_node[name].ledger == node.ledger


@pytest.mark.runs
def test_a_result_says_what_went_on_in_each_level(tmp_path):
    """Every exchange above is one with two sites, and one with three zones below."""
    result = run(scenario(), out=tmp_path / "run")
    exchanges = result.rounds_done + 2  # what is handed over, and what came of it
    assert result.between_sites.messages == 2 * 2 * exchanges
    assert result.in_sites.messages == 2 * 3 * exchanges == run(scenario({})).messages
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["messages"] == written["in_sites"]["messages"] + written["between_sites"]["messages"]
    assert min(level["seconds"] for level in (written["in_sites"], written["between_sites"])) > 0


@pytest.mark.runs
def test_whoever_hears_every_broker_reads_the_noisy_loads_that_each_zone_hands_over(tmp_path):
    for name, problem in {"levels": TWO, "flat": {}}.items():
        run(scenario(problem, record="transcript"), out=tmp_path / name)
    levels, flat = (attack(tmp_path / name)["loads"] for name in ("levels", "flat"))
    assert levels == flat
    assert {loads["what"] for loads in levels.values()} == {"noisy answer"}


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        ([["z1", "z2", "z3"]], r"found \[3\] zones, expected two sites or more, none of them empty"),
        ([["z1", "z2", "z3"], []], r"found \[3, 0\] zones, expected two sites or more, none of them empty"),
        ([["z1"], ["z2"]], "found z3 in 0 sites, expected each of z1, z2, z3 in one"),
        ([["z1", "z2"], ["z2", "z3"]], "found z2 in 2 sites, expected each of z1, z2, z3 in one"),
        ([["z1", "z2"], ["z3", "z9"]], "found zone z9, expected each of z1, z2, z3 in one"),
    ],
)
def test_sites_that_are_no_deal_of_the_zones_are_refused(sites, expected):
    with pytest.raises(InputError, match=f"^scenario: problem.sites: {expected}$"):
        run(scenario({"sites": sites}))


def test_so_are_sites_of_an_algorithm_that_has_one_level_and_on_a_broker_for_all():
    raw = scenario({**TWO, "objective": "shedding"}) | {"algorithm": {"name": "ladmm", "rounds": 5, "rho": 100.0}}
    del raw["problem"]["ac"], raw["privacy"]["mode"]
    with pytest.raises(InputError, match=r"problem.sites: found 2 sites, expected none .algorithm.name: ladmm"):
        run(raw)
    with pytest.raises(InputError, match=r"^--broker: found mqtt://127.0.0.1:9 with sites, expected auto, embedded"):
        run(scenario(), transport="mqtt", broker="mqtt://127.0.0.1:9")


@pytest.mark.runs
@pytest.mark.parametrize("lie", [{"value": (1.7e308, 1.7e308)}, {"products": ((0.0,),), "steps": ((1.0,),)}])
def test_a_site_that_lies_about_its_sums_ends_the_run_in_one_line(monkeypatch, lie):
    def lied(self, s, values):
        sums = measured(self, s, values)
        return sums if "products" in lie and not sums.steps else replace(sums, **lie)

    measured = Entries.measured
    monkeypatch.setattr(Entries, "measured", lied)
    with pytest.raises(Stopped) as raised:
        run(scenario())
    assert "\n" not in str(raised.value)


def test_a_site_takes_no_factor_with_which_it_cannot_compute():
    member = SiteMember({"z1": np.arange(2)}, {"z1": np.arange(0)}, 5)
    for factor in (0.0, -1.0, inf, nan):
        with pytest.raises(Malformed):
            member.check(Point({"z1": np.zeros(2)}, Move("begin", factor, np.zeros(0))))
