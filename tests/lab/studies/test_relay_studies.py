"""The studies of the token papers, on small settings: their figures come from runs, and are what their columns say."""

import re
from itertools import pairwise
from math import inf, log, sqrt

import numpy as np
import pytest

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.lab.rollout.machines import walk as hand_on
from hushgrid.lab.studies.common import study
from hushgrid.lab.studies.papers import incremental, incremental_leak, relay
from hushgrid.lab.studies.papers.relay import RelayTask
from hushgrid.lab.studies.problems import relay as relay_problems
from hushgrid.lab.studies.relay import private

# --- what they share ---


def test_a_token_handed_from_machine_to_machine_moves_as_in_the_compiled_whole_run():
    p = relay.problem("ring", 5)
    walk = study.random_walk(p.graph, 60, seed=2)
    params = recal.Params(rounds=60, variant="none")
    whole = whole_recal.Agents(params, p.losses, Regularizer()).walk(walk, record=True)
    agents = [
        recal.Agent(params, study.Exact(f), Regularizer(), i, 5, f.L, f.size, f"n{i}", (), study.nowhere)
        for i, f in enumerate(p.losses)
    ]
    zero = np.zeros(p.losses[0].size)
    for k, i, token in hand_on(agents, walk, (zero, zero)):
        assert i == walk[k]
        assert np.allclose(token, whole[k], rtol=0, atol=1e-12)


def test_a_random_walk_goes_along_edges_and_is_a_function_of_its_seed():
    graph = relay.network("geometric", 10)
    walk = study.random_walk(graph, 500, seed=1)
    assert all(j in graph.neighbours[i] for i, j in pairwise(walk))
    assert set(walk) == set(range(10))
    assert walk == study.random_walk(graph, 500, seed=1) != study.random_walk(graph, 500, seed=2)


def test_an_exact_oracle_refuses_what_promises_privacy():
    gate = study.Exact(relay.problem("ring", 3).losses[0])
    for question in (gate.gradient, gate.perturb, lambda x: gate.minimizer(x, 1.0)):
        with pytest.raises(Refused, match="expected variant none"):
            question(np.zeros(relay.FEATURES))


def test_figures_have_three_digits_and_a_chart_is_self_contained():
    table = study.Table("counts", ("a", "b"), [("x", 1.23456), ("y", inf), ("z", float("nan")), ("w", 7)])
    assert study.Page("small", [table], {}).markdown().splitlines()[-4:] == [
        "| x | 1.23 |", "| y | unbounded |", "| z |  |", "| w | 7 |",
    ]  # fmt: skip
    panel = study.Panel("one", "x", "y", {"curve": (np.array([1.0, 2.0]), np.array([1.0, 0.1]))}, marks=True)
    svg = study.chart("title", [[panel]])
    assert "</svg>" in svg
    assert 'href="http' not in svg


def test_an_axis_of_less_than_a_decade_has_numbers():
    panel = study.Panel("one", "x", "y", {"curve": (np.array([1.0, 2.0]), np.array([0.19, 0.27]))}, marks=True)
    svg = study.chart("title", [[panel]])
    assert len(re.findall(r">0\.2\d*</text>", svg)) >= 3


# --- Tables I to III ---


@pytest.mark.parametrize("method", relay.METHODS)
def test_activations_leakage_frequency_and_vectors_are_counted_on_the_way_to_the_accuracy(method):
    line = relay.measure(RelayTask("ring", 5, method, 20_000, 1))
    sent, error = line.curve
    assert error[-1] <= relay.ACCURACY < np.min(error[:-1])
    assert sent[-1] == line.sent
    if method in ("ADMM, synchronous", "EXTRA", "NIDS"):
        assert (line.activations, line.sent) == (5 * line.plf, 2 * 5 * line.plf)  # every agent, both neighbours
    else:
        each = {"RECAL, random walk": 2, "RECAL, cycle": 2, "RW-ADMM": 2}.get(method, 1)
        assert line.sent == each * line.activations
        cycle = method in ("RECAL, cycle", "I-ADMM")
        assert line.plf == np.ceil(line.activations / 5) if cycle else line.plf > line.activations / 5


def test_what_is_not_reached_within_the_limit_is_said_to_be_infinite():
    line = relay.measure(RelayTask("ring", 5, "RECAL, cycle", 20, 1))
    assert (line.activations, line.plf, line.sent) == (inf, inf, inf)


def test_growth_is_the_exponent_of_n():
    lines = [
        relay.RelayResult(RelayTask("ring", n, "", 0, 0), 0, 1.0, 0.0, 3.0 * n**2, 5.0, (None, None))
        for n in (4, 8, 16)
    ]
    assert relay.growth(lines, "plf") == pytest.approx(2.0)
    assert relay.growth(lines, "sent") == pytest.approx(0.0, abs=1e-12)


# --- Tables IV and V ---


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(private, "SEEDS", 1)
    monkeypatch.delenv("HUSHGRID_IJCNN1", raising=False)


@pytest.fixture(scope="module")
def made_up():
    return relay_problems.made_up()


def test_theorem_4_claims_its_epsilon_for_the_published_noise_of_the_agent_that_is_asked_most(made_up):
    walk, R = private.ring_walk(0), 1.02
    sd = private.published_sd(made_up, 12.0, R, walk)
    busiest = int(np.argmax(np.bincount(walk)))
    own = sd[[k for k, i in enumerate(walk) if i == busiest]]
    assert np.allclose(own[:-1] ** 2, R * own[1:] ** 2)
    rho, known = private.budget(12.0), log(1e3)
    assert rho + 2 * sqrt(rho * known) == pytest.approx(12.0)
    alpha, beta = 1 / (min(made_up.L) + 1), 1 / 18
    assert np.sum(8 * (alpha * beta / own) ** 2) == pytest.approx(rho)
    assert own[-1] > private.last_noise(made_up, 12.0)  # all of the budget on the last answer


@pytest.mark.runs
def test_the_papers_logistic_problem_on_adult_has_nothing_to_learn(few, monkeypatch):
    """l1 = 1/2 is above every entry of the gradient at 0: x* = 0, and RECAL stands on it to the last bit."""
    p = relay_problems.problems()["Adult, logistic, the paper's r"]()
    assert not p.star.any()
    at_zero = sum(f.gradient(p.star) for f in p.losses) / 8
    assert np.max(np.abs(at_zero)) < p.regularizer.l1
    monkeypatch.setattr(private, "ACTIVATIONS", 400)
    assert p.start().all()
    assert not private.walked(p, 0)[-1].any()


def test_a_guarded_line_costs_what_it_asks_and_errs_the_less_the_more_it_may_cost(made_up):
    errors = []
    for epsilon in (0.1, 100.0):
        x, cost = private.guarded(made_up, "RECAL", private.terms(epsilon, 1e-3, 20, 1.0), 1.9, 0)
        assert x.shape == (160, 22)
        assert 0.99 * epsilon < cost <= epsilon
        errors.append(made_up.error(x[-1]))
    assert errors[1] < errors[0]


@pytest.mark.parametrize("method", ["RECAL", "I-ADMM"])
def test_guarded_both_methods_ask_each_agent_as_often_as_the_terms_say(made_up, method):
    x, _ = private.guarded(made_up, method, private.terms(1.0, 1e-3, 3, 1.0), 1.0, 0)
    assert len(x) == 24
    assert np.all(np.isfinite(x))
    assert np.all(np.any(np.diff(x, axis=0) != 0, axis=1))


def test_the_published_noise_hides_no_gradient_and_the_gates_does(made_up):
    """Relative to gradients above 1e-3: 1/beta = 18 times rounding of numbers below 100 at 300 hops."""
    assert np.max(private.overheard(made_up, "published", 0.1)) < 1e-7
    assert np.median(private.overheard(made_up, "guarded", 0.1)) > 0.1


def test_ijcnn1_is_measured_where_it_is_said_to_be_and_its_absence_is_one_line(few, monkeypatch):
    assert not any(name.startswith("ijcnn1") for name in relay_problems.problems())
    monkeypatch.setenv("HUSHGRID_IJCNN1", "/nowhere/ijcnn1.bz2")
    with pytest.raises(InputError, match=r"^/nowhere/ijcnn1.bz2: No such file"):
        relay_problems.problems()["ijcnn1, least-squares, ridge"]()


# --- Figures 3 and 5 ---


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(incremental, "VISITS", 60)


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
@pytest.mark.parametrize("method", incremental.METHODS)
def test_the_accuracy_is_each_distance_over_its_own_start(short, kind, method):
    curve = incremental.way(incremental.IncrementalTask(kind, 12, 0.5, method))
    assert np.all(np.diff(curve.sent) >= 0)  # COCA may be silent for rounds
    if method.startswith("PI"):  # started far away: (21) flatters
        assert np.all(curve.accuracy[5:] < curve.distance[5:])
    else:
        ratio = curve.distance / curve.accuracy
        assert np.allclose(ratio, ratio[0], rtol=1e-9)  # |x*|, every agent having started at 0


def test_communication_is_counted_to_the_first_time_an_error_is_reached():
    curve = incremental.Curve(np.array([10.0, 20.0, 30.0]), np.ones(3), np.array([1.0, 1e-4, 1e-2]))
    assert incremental.needed(curve, 1e-3) == 20.0
    assert np.isnan(incremental.needed(curve, 1e-9))


@pytest.mark.runs
def test_what_was_tried_of_IPW_ADMM_and_COCA_is_a_line_each(short, monkeypatch):
    """Counted otherwise a run is the same and costs less; a penalty of 10 instead of 1 is another run."""
    monkeypatch.setattr(incremental, "on_two", lambda work, tasks, name: [work(task) for task in tasks])
    table = incremental.tried((12, 0.5))
    ends = {(method, what): row for method, what, *row in table.rows}
    assert len(ends) == len(incremental.TRIED)
    for method, otherwise in (
        ("COCA", "a message that all neighbours hear counts once"),
        ("IPW-ADMM", "25 hops at once count once"),
    ):
        assert ends[method, otherwise][0] == ends[method, "as printed"][0]
    assert ends["IPW-ADMM", "rho = 10"][0] != ends["IPW-ADMM", "as printed"][0]
    counted = [
        incremental.way(incremental.IncrementalTask("ridge", 12, 0.5, "COCA", 0, c))
        for c in ((), (("counted", "messages"),))
    ]
    assert np.array_equal(counted[0].distance, counted[1].distance)
    assert counted[1].sent[-1] < counted[0].sent[-1] / 2


@pytest.mark.runs
def test_an_eavesdropper_hears_I_ADMM_at_once_and_PI_ADMM1_in_the_end(short):
    plain, hidden = (
        incremental_leak.leak(incremental.IncrementalTask("logistic", 12, 1.0, m), games=4)
        for m in ("I-ADMM", "PI-ADMM1")
    )
    assert np.max(plain.error) < 1e-8
    assert hidden.error[0] > 0.1 > 1e-3 > hidden.error[-1]
    assert plain.game == hidden.game == 1.0


@pytest.mark.runs
def test_ten_visits_tell_a_ridge_agents_whole_model_under_PI_ADMM1():
    """18 equations for 5 numbers of the model and 9 gammas."""
    assert np.median(incremental_leak.models()) < 1e-8


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_the_estimator_of_the_paper_diverges_where_the_forward_recursion_does_not(kind):
    """Figures 4 and 6 with 20 agents: (23) is further off than a guess of 0, and colluders who go back double their
    error.
    """
    found = {
        m: incremental_leak.estimates(incremental.IncrementalTask(kind, 20, 0.3, m)) for m in incremental_leak.ESTIMATED
    }
    assert found["I-ADMM"].worst < 1e-12
    for method in ("PI-ADMM1", "PI-ADMM2"):
        of = found[method]
        off = {name: np.abs(y - of.y["true"]).max(axis=1) for name, y in of.y.items()}
        assert of.worst <= 0.2
        assert off["forward recursion"][-1] <= 0.2
        assert off["estimator (23)"][0] > 1e2 * np.abs(of.y["true"][0]).max()
        assert off["N - 1 colluders, backwards"][0] > 10 * off["forward recursion"][0]
