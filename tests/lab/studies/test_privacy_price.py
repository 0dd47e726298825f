"""The price of privacy, on small settings: draws are the gate's, cost never stands alone."""

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import NoDispatch
from hushgrid.lab.studies import privacy_price
from hushgrid.lab.studies.privacy_price import (
    MARGINS_ALONE,
    MECHANISMS,
    NO_DISPATCH,
    NO_NOISE,
    Task,
    exact,
    measure,
    operated,
    released,
)
from hushgrid.node.problems.power_flow.gate import lattice_of
from tests.support.devices.zone_fleet import setup

PLAIN, TOTALS, KEPT = MECHANISMS
CASE = load("case14")
ZONES = privacy_price.zones_of("case14")
D = np.concatenate([CASE.buses.p_d, CASE.buses.q_d])


@pytest.fixture(autouse=True)
def ipopt():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")


def test_only_loads_of_the_mask_carry_noise_and_a_draw_is_a_function_of_its_number():
    for release in ("plain", "totals"):
        first, second = (released(CASE, ZONES, 1.0, release, k) for k in (0, 1))
        assert np.array_equal(first != D, D != 0)
        assert np.array_equal(first, released(CASE, ZONES, 1.0, release, 0))
        assert not np.array_equal(first[D != 0], second[D != 0])


def test_plain_noise_has_the_grid_and_scale_of_the_gates_one_answer():
    made = setup(mode="input", name="consensus-admm", rounds=20)
    of_gate = lattice_of("z1", made.public_loss("z1"), made.terms)
    seen = released(CASE, ZONES, made.terms.epsilon, "plain", 0)[D != 0]
    assert np.array_equal(seen / of_gate.g, np.rint(seen / of_gate.g))
    spread = np.mean([np.abs(released(CASE, ZONES, made.terms.epsilon, "plain", k) - D).sum() for k in range(100)])
    assert spread == pytest.approx(of_gate.expected_l1 * np.sum(D != 0), rel=0.1)  # 2,200 draws: 2 % is one deviation


def test_a_zones_total_is_off_by_less_than_the_sum_of_as_many_plain_loads():
    at = np.arange(40)

    def error(release):
        entropy = np.random.default_rng(1).bytes
        return np.std([privacy_price.answered(at * 0.01, 1.0, release, entropy).sum() for _ in range(400)])

    assert error("totals") < error("plain") / 2.5  # sqrt(41)/2 = 3.2 in expectation


def test_at_the_true_loads_there_is_no_price_but_that_of_the_margins():
    (nothing,) = measure(Task("case14", NO_NOISE, 1.0, 1)).drawn
    assert nothing[:-1] == pytest.approx((0,) * 9, abs=1e-3)
    assert not nothing.violates
    (alone,) = measure(Task("case14", MARGINS_ALONE, 1.0, 1)).drawn
    assert 0.5 < alone.cost < 5
    assert not alone.violates


def test_margins_cost_more_and_pass_fewer_limits():
    without, kept = (measure(Task("case14", m, 1.0, 4)) for m in (TOTALS, KEPT))
    assert kept.mean("cost") > without.mean("cost") + 1
    assert kept.mean("q") < without.mean("q")
    assert not any(d.why for line in (kept, without) for d in line.drawn)


def test_a_draw_without_a_dispatch_is_counted_and_left_out_of_the_means():
    line = measure(Task("case14", PLAIN, 1.0, 2))
    failed = line._replace(drawn=[*line.drawn, operated(CASE, NoDispatch("failed", "for the test"), line.optimum)])
    assert [one.failed(NO_DISPATCH) for one in (line, failed)] == [0, 1]
    assert failed.mean("imbalance") == line.mean("imbalance")


def test_load_that_a_dispatch_sheds_is_unserved_as_far_as_there_is_load():
    found = exact("case14")
    slack = found.slack.copy()
    slack[[0, 1], 0] = 0.05, 1.0  # bus 1 has no load, bus 2 has 21.7 MW
    slack[2, 1] = 0.3  # spilled: noise below zero, which the true loads have not
    shed = privacy_price.AcDispatch(**{f: getattr(found, f) for f in found.__slots__} | {"slack": slack})
    drawn = operated(CASE, shed, found.cost)
    assert drawn.unserved == pytest.approx(21.7)
    assert drawn.imbalance == pytest.approx(21.7, rel=0.1)
    assert drawn.slack == pytest.approx(30)


def test_every_table_and_the_chart_have_the_violations_beside_the_cost(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(privacy_price, "on_two", lambda work, tasks, name: [work(task) for task in tasks])
    privacy_price.study(("case14",), (1.0, 5.0), 2, tmp_path)
    text = (tmp_path / "privacy-price-figures.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("| case | loads")]
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| case14 | plain | 1 |")}
    assert widths == {head.count("|") for head in heads[:2]}
    assert len(heads) == 3
    for head in heads:
        assert all(f"beyond {what}" in head for what in ("V", "ratings", "P", "Q"))
        assert "unserved" in head
    assert text.count("| case14 | plain | 1 |") == 2
    assert text.count("| case14 | margins alone | 5 |") == 1
    assert (tmp_path / "privacy-price-figures.svg").read_text().count("beyond") == 3
    capsys.readouterr()
