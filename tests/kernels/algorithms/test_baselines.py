"""The baselines of the two token papers: COCA's vectors, IPW-ADMM's and RW-ADMM's limits, and what they are made of."""

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.algorithms import iadmm, wadmm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.studies.baselines import coca, ipwadmm, rwadmm
from tests.support import paths
from tests.support.agents.agents_without_gate import Data, along, distance, losses, names, network, walked
from tests.support.agents.agents_without_gate import random as walk_on

VECTORS = np.load(paths.VECTORS / "iadmm.npz")
PLAIN = Regularizer()
UPDATES = ("exact", "first-order")


def sensors(kind="least-squares"):
    return losses(kind, 6, 20, 3, 4, l2=0.2)


@pytest.mark.parametrize("problem", ["ridge", "logistic"])
def test_COCA_sends_and_errs_as_stored(problem):
    objective = Objective(kind="least-squares", scale=2.0) if problem == "ridge" else Objective(kind="logistic")
    gates = [Data(Loss(objective, VECTORS[f"{problem}_O"][i], VECTORS[f"{problem}_T"][i])) for i in range(8)]
    neighbours = [np.flatnonzero(row).tolist() for row in VECTORS[f"{problem}_adj"]]
    x_star = VECTORS[f"{problem}_xstar"]
    rounds = list(coca.run(coca.Params(rounds=20), gates, neighbours, 2))
    assert [r.sent for r in rounds] == VECTORS[f"{problem}_coca_comm"][1:].tolist()
    accuracy = [np.mean(np.linalg.norm(r.x - x_star, axis=1)) / np.linalg.norm(x_star) for r in rounds]  # (21)
    assert np.allclose(accuracy, VECTORS[f"{problem}_coca_acc"][1:], rtol=0, atol=1e-9)


@pytest.mark.runs
@pytest.mark.parametrize("update", UPDATES)
def test_COCA_reaches_the_optimum_and_sends_less_than_without_a_censor(update):
    fs, graph = sensors(), network("geometric")
    sent = {}
    for alpha in (1.0, 1e-300):  # with a threshold of nothing, all is sent
        p = coca.Params(rounds=1000, alpha=alpha, rho=0.95, update=update)
        rounds = list(coca.run(p, [Data(f) for f in fs], graph.neighbours, 3, [f.L for f in fs]))
        assert max(distance(fs, PLAIN, x) for x in rounds[-1].x) <= 1e-10
        assert rounds[-1].spoken * min(map(len, graph.neighbours)) <= rounds[-1].sent
        sent[alpha] = rounds[99].sent  # later x stands still, to the last bit, and nothing is sent
    assert sent[1.0] < sent[1e-300] == 100 * 2 * len(graph.edges)
    assert rounds[99].spoken == 100 * graph.n


@pytest.mark.parametrize("update", UPDATES)
def test_IPW_ADMM_with_one_token_and_one_choice_is_W_ADMM(update):
    fs, graph = sensors("logistic"), network("geometric")
    p = ipwadmm.Params(rounds=80, rho=5.0, choices=1, update=update)
    steps = list(ipwadmm.run(p, [Data(f) for f in fs], graph.neighbours, 3, np.random.default_rng(3)))
    walk = [s.i for s in steps]
    w = wadmm.Params(rounds=80, rho=5.0, variant="none", update=update)
    agents = [iadmm.Agent(w, Data(f), 6, 3, f"n{i}", names(range(6)), along(walk)) for i, f in enumerate(fs)]
    for step, hop in zip(steps, walked(agents), strict=True):
        assert np.allclose(step.z[0], hop.token[0], rtol=0, atol=1e-11)
        assert np.allclose(step.x[hop.i], agents[hop.i].state.x, rtol=0, atol=1e-11)


@pytest.mark.runs
@pytest.mark.parametrize("duals", ["own", "shared"])
@pytest.mark.parametrize(("update", "tau"), [("exact", 0.0), ("first-order", 3.0)])
def test_IPW_ADMM_reaches_the_optimum_with_every_token(update, tau, duals):
    fs, graph = sensors(), network("geometric")
    p = ipwadmm.Params(rounds=9_000, rho=1.0, tau=tau, tokens=4, update=update, duals=duals)
    *_, last = ipwadmm.run(p, [Data(f) for f in fs], graph.neighbours, 3, np.random.default_rng(3))
    assert max(distance(fs, PLAIN, z) for z in last.z) <= 1e-10
    assert last.sent == 9_000


def test_a_walk_with_choice_visits_more_evenly_than_one_without():
    fs, graph = sensors(), network("geometric")
    spread = {}
    for choices in (1, 3):
        p = ipwadmm.Params(rounds=600, rho=1.0, choices=choices, update="first-order")
        visits = [s.i for s in ipwadmm.run(p, [Data(f) for f in fs], graph.neighbours, 3, np.random.default_rng(3))]
        spread[choices] = np.std(np.bincount(visits, minlength=6))
    assert spread[3] < spread[1] / 2


@pytest.mark.runs
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("kind", ["ring", "geometric"])
def test_RW_ADMM_reaches_the_optimum_and_pays_each_neighbour_a_message(kind, update):
    fs, graph = sensors(), network(kind)
    walk = walk_on(graph, 3000)
    p = rwadmm.Params(rounds=3000, rho=1.0, update=update)
    *_, last = rwadmm.run(p, [Data(f) for f in fs], graph.neighbours, 3, walk, [f.L for f in fs])
    assert max(distance(fs, PLAIN, x) for x in last.x) <= 1e-10
    assert last.sent == sum(len(graph.neighbours[i]) for i in walk)


@pytest.mark.runs
def test_RW_ADMM_by_gradients_reaches_the_optimum_under_a_regularizer():
    fs, graph, r = sensors(), network("ring"), Regularizer(l1=0.02, l2=0.1)
    p = rwadmm.Params(rounds=4000, rho=1.0, update="first-order")
    *_, last = rwadmm.run(p, [Data(f) for f in fs], graph.neighbours, 3, walk_on(graph, 4000), [f.L for f in fs], r)
    assert max(distance(fs, r, x) for x in last.x) <= 1e-10


def test_guarded_RW_ADMM_has_one_noisy_gradient_an_activation():
    fs, graph = sensors(), network("ring")
    gates = [Data(f, noise=[np.full(3, 0.1)] * 9) for f in fs]
    p = rwadmm.Params(variant="guarded", rounds=9, rho=1.0, update="first-order")
    walk = [0, 1, 2, 1, 0, 1, 2, 3, 4]
    list(rwadmm.run(p, gates, graph.neighbours, 3, walk, [f.L for f in fs]))
    assert [len(gate.answers) for gate in gates] == np.bincount(walk, minlength=6).tolist()
    with pytest.raises(InputError, match=r"found update exact, expected first-order \(variant: guarded\)"):
        rwadmm.Params(variant="guarded", rounds=9, rho=1.0)


@pytest.mark.parametrize("room", [coca, ipwadmm, rwadmm], ids=lambda room: room.__name__.rsplit(".", 1)[1])
def test_what_is_reconstructed_says_so_and_refuses_unknown_keys(room):
    assert "Reconstructed" in room.__doc__
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"rounds": 1, "rho": 1.0, "step": 1.0}, room.Params)
