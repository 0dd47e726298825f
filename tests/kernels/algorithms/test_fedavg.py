"""Federated averaging and FedProx: what their papers say of one local step, of many, and of the proximal term."""

from math import inf

import numpy as np
import pytest

from hushgrid.kernels.algorithms import fedavg, fedprox
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.star import Centre, W, Z
from hushgrid.kernels.problems.prox import Box
from tests.support.agents.ladmm_vectors import losses
from tests.support.agents.quadratic_star import converse

NAMES = [f"n{i}" for i in range(5)]
FS = losses("logistic_e1")


class Plain:
    def __init__(self, f):
        self.exact_gradient = f.gradient


def fleet(params, box=inf, fs=FS, **stop):
    size = fs[0].size
    start, at = np.zeros(size), {"epsilon": inf, "tolerance": 0.0, "patience": 0} | stop
    centre = Centre(position=dict.fromkeys(NAMES, np.arange(size)), start=dict.fromkeys(NAMES, start), **at)
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
