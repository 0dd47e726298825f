"""Whole runs, all agents in a few arrays: to 1e-12 what the machines do one by one, to 1e-9 the papers' vectors.

Compiled and plain they are the same to 1e-12: they have their rows in test_kernels.
"""

import numpy as np
import pytest

from hushgrid.kernels import jit
from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Loss, Nonconvex, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.benchmarks import walk
from hushgrid.lab.rollout.compiled import iadmm as whole_iadmm
from hushgrid.lab.rollout.compiled import recal as whole_recal
from tests.support import paths
from tests.support.agents.agents_without_gate import losses, network, random, walked
from tests.support.agents.iadmm_agents import ALGORITHMS, Stored
from tests.support.agents.iadmm_agents import agents as admm_agents
from tests.support.agents.recal_agents import PROBLEMS, WALK, stored
from tests.support.agents.recal_agents import VECTORS as RECAL
from tests.support.agents.recal_agents import agents as recal_agents

IADMM = np.load(paths.VECTORS / "iadmm.npz")
K, RHO, NET = 200, 5.0, Regularizer(l1=0.01, l2=0.02, box=0.8)
RNG = np.random.default_rng(6)
NOISE, GAMMA = RNG.normal(size=(K, 3)), RNG.uniform(0.8, 1.2, K)
#: Rows of each agent; more than the three features have the Gram form.
KINDS = [("least-squares", 2), ("least-squares", 10), ("logistic", 10)]


def near(a, b, largest):
    return np.max(np.abs(np.asarray(a) - b)) <= largest


def problem(kind, rows):
    """Six agents with a nonconvex term where nothing is minimised, a scale and a ridge; and a walk."""
    nonconvex = Nonconvex(lam=0.1, omega=2.0) if kind == "logistic" else None
    fs = losses(kind, 6, rows, 3, 2, l2=0.2, scale=1.5, nonconvex=nonconvex)
    return fs, random(network("geometric"), K)


# --- the machines ---


@pytest.mark.parametrize(
    ("variant", "reading"), [("none", "B"), ("guarded", "B"), ("published", "A"), ("published", "B")]
)
@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_RECAL_is_its_machines(kind, rows, variant, reading):
    """x and u after each activation, the agents' y, lambda and last noise at the end; numbers below 100."""
    fs, walk = problem(kind, rows)
    machines = recal_agents(fs, NET, walk, noise=NOISE, variant=variant, reading=reading)
    tokens = [hop.token for hop in walked(machines)]
    whole = whole_recal.Agents(recal.Params(rounds=K, variant=variant), fs, NET, reading)
    assert near(whole.walk(walk, noise=None if variant == "none" else NOISE, record=True), tokens, 1e-12)
    for name in ("y", "lam", "eps"):
        assert near(getattr(whole, name), [getattr(m.state, name) for m in machines], 1e-12)


ADMM = {
    "exact": {"update": "exact"},
    "first-order": {"update": "first-order"},
    "PI-ADMM1": {"variant": "published", "gamma": (0.8, 1.2)},
    "PI-ADMM1, first-order": {"variant": "published", "gamma": (0.8, 1.2), "update": "first-order"},
    "PI-ADMM2": {"variant": "published", "noise_sd": 1.0},
    "guarded": {"variant": "guarded"},
}


def closed_form(kind, name):
    """Whether it is compiled: logistic has the update (8) only."""
    return kind == "least-squares" or "first-order" in name or name == "guarded"


@pytest.mark.parametrize(
    ("kind", "rows", "variant"), [(*kind, name) for kind in KINDS for name in ADMM if closed_form(kind[0], name)]
)
def test_I_ADMM_is_its_machines(kind, rows, variant):
    fs, walk = problem(kind, rows)
    params = iadmm.Params(rounds=K, rho=RHO, **{"variant": "none"} | ADMM[variant])
    start = np.random.default_rng(3).uniform(size=(6, 3))

    def draws(i):
        hops = [k for k, at in enumerate(walk) if at == i]
        return lambda k: Stored(GAMMA[hops[k - 1]], NOISE[hops[k - 1]] if params.noise_sd else None)

    machines = admm_agents(fs, walk, noise=NOISE, draws=draws, rho=RHO, **ADMM[variant])
    for machine, v in zip(machines, start, strict=True):
        machine.state.x, machine.state.y = v, RHO * v
    seen = [(hop.token[0], machines[hop.i].state.x) for hop in walked(machines)]
    whole = whole_iadmm.Agents(params, fs, start)
    noisy = params.noise_sd or variant == "guarded"
    record = whole.walk(walk, gamma=GAMMA if params.gamma else None, noise=NOISE if noisy else None, record=True)
    assert near(record, seen, 1e-12)
    assert near(whole.x, [m.state.x for m in machines], 1e-12)
    assert near(whole.y, [m.state.y for m in machines], 1e-12)


# --- the vectors ---


@pytest.mark.parametrize("name", PROBLEMS)
def test_RECAL_gives_the_papers_vectors(name):
    fs, r, params = stored(name)
    whole = whole_recal.Agents(recal.Params(rounds=12, variant="none", **params), fs, r)
    for k, i in enumerate(WALK):
        [(x, u)] = whole.walk([i], record=True)
        for found, key in ((x, "x"), (u, "u"), (whole.y, "y"), (whole.lam, "lam")):
            assert near(found, RECAL[f"{name}/{key}"][k], 1e-9)


@pytest.mark.parametrize(
    ("variant", "reading", "key"), [("published", "A", "A"), ("published", "B", "B"), ("guarded", "B", "H")]
)
def test_RECAL_gives_the_papers_noisy_vectors(variant, reading, key):
    fs, r, params = stored("elastic")
    whole = whole_recal.Agents(recal.Params(rounds=12, variant=variant, **params), fs, r, reading)
    record = whole.walk(WALK, noise=RECAL["dp/eps"], record=True)
    assert near(record[:, 0], RECAL[f"dp/{key}/x"], 1e-9)
    assert near(record[:, 1], RECAL[f"dp/{key}/ut"], 1e-9)


@pytest.mark.parametrize(
    ("problem", "update"), [("ridge", "exact"), ("ridge", "first-order"), ("logistic", "first-order")]
)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_I_ADMM_gives_the_papers_vectors(problem, update, name):
    objective = Objective(kind="least-squares", scale=2.0) if problem == "ridge" else Objective(kind="logistic")
    fs = [Loss(objective, A, b) for A, b in zip(IADMM[f"{problem}_O"], IADMM[f"{problem}_T"], strict=True)]
    route, walk = IADMM[f"{problem}_route"], IADMM[f"{problem}_walk"]
    params = iadmm.Params(
        rounds=40, rho=float(IADMM[f"{problem}_rho"]), update=update, **{"variant": "none"} | ALGORITHMS[name]
    )
    whole = whole_iadmm.Agents(params, fs, None if params.start == "zeros" else IADMM[f"{problem}_v"])
    record = whole.walk(
        walk if name == "wadmm" else np.resize(route, 40),
        gamma=IADMM[f"{problem}_gamma"] if params.gamma else None,
        noise=IADMM[f"{problem}_omega"] if params.noise_sd else None, record=True,
    )  # fmt: skip
    key = f"{problem}_{'exact' if update == 'exact' else 'fo'}_{name}"
    assert near(record[:, 0], IADMM[f"{key}_z"][1:], 1e-9)
    assert near(record[:, 1], IADMM[f"{key}_x"], 1e-9)


# --- in pieces ---


def test_a_walk_in_pieces_is_the_walk_and_what_is_not_recorded_is_the_same():
    fs, walk = problem("least-squares", 10)
    for make in (lambda: whole_recal.Agents(recal.Params(rounds=K, variant="none"), fs, NET),
                 lambda: whole_iadmm.Agents(iadmm.Params(rounds=K, rho=RHO, variant="none"), fs)):  # fmt: skip
        whole, pieces = make(), make()
        record = whole.walk(walk, record=True)
        assert pieces.walk(walk[:50]).shape == (0, 2, 3)
        assert pieces.walk(walk[50:], record=True).tobytes() == record[50:].tobytes()
        assert pieces.y.tobytes() == whole.y.tobytes()


# --- what is refused ---


def test_what_compiled_code_does_not_take_is_refused():
    def refused(fs, found, **params):
        with pytest.raises(InputError, match=found):
            whole_iadmm.Agents(iadmm.Params(rounds=K, rho=RHO, variant="none", **params), fs)

    logistic, squares = problem("logistic", 10)[0], problem("least-squares", 10)[0]
    refused(logistic, "found logistic with nonconvex, expected least-squares without nonconvex")
    softmax = [Loss(Objective(kind="softmax"), f.A, np.maximum(f.b, 0.0), 2) for f in logistic]
    refused(softmax, "found softmax, expected least-squares or logistic", update="first-order")
    refused([logistic[0], squares[0]], "found agents of different objectives or sizes", update="first-order")


def test_a_walk_that_leaves_the_agents_or_noise_of_another_length_is_refused():
    fs, walk = problem("least-squares", 10)
    whole = whole_iadmm.Agents(iadmm.Params(rounds=K, rho=RHO, variant="none"), fs)
    for wrong in (
        {"nodes": [0, 6]},
        {"nodes": [-1]},
        {"nodes": walk, "noise": NOISE[1:]},
        {"nodes": walk, "noise": NOISE[:, 1:]},
        {"nodes": walk, "gamma": GAMMA[1:]},
    ):
        with pytest.raises(ValueError, match="mismatch"):
            whole.walk(**wrong)


# --- measured ---


def test_the_bench_measures_both_walks_and_the_file_it_is_told_of(tmp_path, monkeypatch):
    """No figure is judged here."""
    file = tmp_path / "rows.txt"
    file.write_text("".join(f"{1 - 2 * (j % 3 == 0)} 1:{j / 40} 2:{-j / 50}\n" for j in range(40)))
    monkeypatch.delenv(walk.IJCNN1, raising=False)
    assert len(walk.measured(steps=20, repeats=2)) == (3 if jit.MODE == "numba" else 2)
    monkeypatch.setenv(walk.IJCNN1, str(file))
    rows = walk.measured(steps=20, repeats=2, activations=16, compiled=2)[-4:]
    assert [r.target for r in rows] == ["<= 0.5 s", None] * 2
    assert all(0 < whole.value < loaded.value for whole, loaded in (rows[:2], rows[2:]))
    monkeypatch.setenv(walk.IJCNN1, str(tmp_path / "gone"))
    with pytest.raises(InputError, match="gone: No such file"):
        walk.measured(steps=20, repeats=2)
