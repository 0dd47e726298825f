"""Federated averaging and FedProx: what their papers say of one local step, of many, of the proximal term and of
momentum.
"""

from math import inf

import numpy as np
import pytest

from hushgrid.kernels.algorithms import fedavg, fedprox
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.star import ServerContext, W, Z
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.prox import Box, Regularizer
from hushgrid.node.problems.records.section import unsolved
from tests.support.agents.ladmm_vectors import losses
from tests.support.agents.quadratic_star import Exact, converse

NAMES = [f"n{i}" for i in range(5)]
FS = losses("logistic_e1")


class Plain:
    def __init__(self, f):
        self.exact_gradient = f.gradient


def fleet(params, box=inf, fs=FS, regularizer=None, **stop):
    size = fs[0].size
    start, at = np.zeros(size), {"epsilon": inf, "tolerance": 0.0, "patience": 0} | stop
    if regularizer is None and box < inf:
        regularizer = Regularizer(box=box)
    at["prox"] = regularizer and regularizer.prox
    centre = ServerContext(position=dict.fromkeys(NAMES, np.arange(size)), start=dict.fromkeys(NAMES, start), **at)
    clients = {name: fedavg.Client(params, Plain(f), Box(box), start) for name, f in zip(NAMES, fs, strict=True)}
    return params.server(centre), clients


def average(**keys):
    return fedavg.Params(**{"variant": "none", "rounds": 40, "step_size": 0.3} | keys)


def proximal(**keys):
    return fedprox.Params(**{"variant": "none", "rounds": 40, "step_size": 0.3} | keys)


def test_with_one_local_step_it_is_gradient_descent_on_the_mean():
    centre, clients = fleet(average())
    x = np.zeros(FS[0].size)
    for _ in converse(centre, clients):
        x = x - 0.3 * np.mean([f.gradient(x) for f in FS], axis=0)
        models = [client.state.mean for client in clients.values()]
        assert np.allclose(np.mean(models, axis=0), x, rtol=1e-12, atol=1e-14)


@pytest.mark.runs
def test_many_local_steps_end_beside_the_optimum_and_the_proximal_term_brings_them_nearer():
    """Li et al., Section 3.1: local updates drift to the nodes' own optima."""

    def slope(params):
        centre, clients = fleet(params)
        list(converse(centre, clients))
        x = np.mean([client.state.mean for client in clients.values()], axis=0)
        return np.linalg.norm(np.mean([f.gradient(x) for f in FS], axis=0))

    one = slope(average(rounds=400))
    many, near = slope(average(rounds=400, local_updates=20)), slope(proximal(rounds=400, local_updates=20, mu=2.0))
    assert one < 1e-9
    assert one < near < many / 2
    assert many > 1e-3


def test_fedprox_without_its_term_is_federated_averaging():
    found = []
    for params in (average(local_updates=3), proximal(local_updates=3, mu=0.0)):
        centre, clients = fleet(params, box=0.2)
        list(converse(centre, clients))
        found.append([client.state.mean.tobytes() for client in clients.values()])
    assert found[0] == found[1]


def test_local_steps_stay_in_the_box_and_a_node_keeps_the_mean_that_it_was_sent_last():
    centre, clients = fleet(average(step_size=3.0, local_updates=2), box=0.2)
    before = np.zeros(FS[0].size)
    for _ in converse(centre, clients):
        for client in clients.values():
            assert np.max(np.abs(client.state.mean)) <= 0.2
            assert np.array_equal(client.outcome()["x"], before)
        before = centre.state.w
    assert centre.state.done == "rounds"


def test_it_may_end_when_its_mean_has_come_to_rest():
    centre, clients = fleet(average(rounds=4000), tolerance=1e-6, patience=3)
    list(converse(centre, clients))
    assert centre.state.done == "tolerance"
    assert centre.state.t < 4000


@pytest.mark.parametrize("body", [W(np.zeros(3)), Z(np.zeros(5)), None], ids=str)
def test_a_client_refuses_what_is_no_model_and_the_server_too(body):
    centre, clients = fleet(average())
    centre.start()
    with pytest.raises(Malformed):
        clients["n0"].receive("coordinator", 1, body)
    assert clients["n0"].state.t == 0
    with pytest.raises(Malformed):
        centre.receive("n0", 1, W(np.zeros(5)))
    assert centre.state.arrived == {}


def test_momentum_of_one_coordinate_is_the_heavy_ball_written_down():
    """v+ = beta v + g, x+ = x - alpha v+, with f_p = h_p/2 (x - c_p)^2."""
    alpha, beta, h, c = 0.3, 0.7, [1.0, 2.0, 0.5, 1.5, 3.0], [1.0, -2.0, 4.0, 0.5, 1.0]
    params = average(step_size=alpha, momentum=beta, rounds=30)
    start = np.zeros(1)
    clients = {n: fedavg.Client(params, Exact([a], [b]), Box(inf), start) for n, a, b in zip(NAMES, h, c, strict=True)}
    at = {"position": dict.fromkeys(NAMES, np.arange(1)), "start": dict.fromkeys(NAMES, start)}
    centre = params.server(ServerContext(epsilon=inf, tolerance=0.0, patience=0, **at))
    x = v = 0.0
    steps = iter(converse(centre, clients))
    for _ in steps:
        g = sum(a * (x - b) for a, b in zip(h, c, strict=True)) / 5
        v = beta * v + g
        x = x - alpha * v
        assert np.allclose(centre.state.w, x, rtol=1e-12, atol=1e-14)
    assert centre.row == 30


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("over", "grows"), [(0.99, False), (1.01, True)])
def test_its_step_is_stable_to_the_bound_of_the_heavy_ball_and_no_further(beta, over, grows):
    alpha = over * 2 * (1 + beta) / 3.0
    params = average(step_size=alpha, momentum=beta, rounds=1500)
    assert params.step_ratio([3.0], 0) == pytest.approx(over)
    start = np.zeros(1)
    clients = {n: fedavg.Client(params, Exact([3.0], [1.0]), Box(inf), start) for n in NAMES}
    at = {"position": dict.fromkeys(NAMES, np.arange(1)), "start": dict.fromkeys(NAMES, start)}
    centre = params.server(ServerContext(epsilon=inf, tolerance=0.0, patience=0, **at))
    far = [abs(float(centre.state.w[0]) - 1.0) for _ in converse(centre, clients)]
    assert (far[-1] > 1e3) if grows else (far[-1] < 1e-3)


def test_with_several_local_steps_momentum_makes_no_longer_step_stable():
    assert average(local_updates=2, momentum=0.9).step_ratio([3.0], 0) == average(local_updates=2).step_ratio([3.0], 0)


@pytest.mark.runs
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("r", [{"l1": 0.02}, {"l1": 0.01, "l2": 0.05}, {"box": 0.2}, {"l1": 0.01, "box": 0.2}], ids=str)
def test_with_one_local_step_its_limit_is_the_optimum_with_the_regulariser_and_the_box(beta, r):
    """Also with momentum, for which prox_{alpha r} is right because v is how far the iterate has come."""
    r = Regularizer(**r)
    centre, clients = fleet(average(step_size=1.0, momentum=beta, rounds=1500), regularizer=r)
    for _ in converse(centre, clients):
        assert np.max(np.abs(centre.state.w)) <= r.box
    best = optimum(FS, r)
    assert np.linalg.norm(centre.state.w - best.x) <= 1e-9 * np.linalg.norm(best.x)


def test_with_several_local_steps_a_regulariser_is_refused_and_a_box_is_not():
    assert unsolved(average(local_updates=2), 0.1, 0.0, None) == "regularizer"
    assert unsolved(average(local_updates=2), 0.0, 0.0, 0.5) is None
    assert unsolved(average(local_updates=1), 0.1, 0.1, 0.5) is None
    assert unsolved(proximal(local_updates=1), 0.1, 0.1, 0.5) is None


def test_momentum_of_many_local_steps_stays_in_the_box():
    centre, clients = fleet(average(step_size=3.0, local_updates=2, momentum=0.9), box=0.2)
    for _ in converse(centre, clients):
        assert np.max(np.abs(centre.state.w)) <= 0.2


def test_only_momentum_adds_to_what_a_coordinator_stores():
    for keys, stored in (({}, False), ({"momentum": 0.0}, False), ({"momentum": 0.5}, True)):
        for r in (None, Regularizer(l1=0.1)):
            centre, _ = fleet(average(**keys), regularizer=r)
            assert hasattr(centre.state, "v") == stored


def test_how_answers_carry_is_the_sum_over_the_rounds_that_follow_each():
    alpha, beta = 0.3, 0.7
    for T in (1, 2, 17):
        naive = sum((alpha * sum(beta**i for i in range(j))) ** 2 for j in range(1, T + 1))
        assert average(momentum=beta).noise_gain(0, T, 1.0, []) == pytest.approx(naive, rel=1e-12)
    assert average().noise_gain(0, 12, 1.0, []) == pytest.approx(12 * alpha**2, rel=1e-12)
