"""The gate of a data problem with terms, noise and authority of the test's choice, and a device's real ledger and
budget check.
"""

import numpy as np

from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.records.gate import RowsGate
from hushgrid.node.schema.sections import Allow
from tests.support.devices.gated_device import plan

CLIP, BETA = 0.75, 0.25


def terms(mechanism="laplace", answers=4, per_answer=0.5, **over):
    """Terms under bounded-change BETA, or what `over` says."""
    delta = 0.0 if mechanism == "laplace" else 1e-5
    accountant = "pure-basic" if mechanism == "laplace" else "gdp"
    given = {
        "mechanism": mechanism,
        "adjacency": f"bounded-change {BETA}",
        "beta": 0.0 if "clip" in over else BETA,
        "mode": "objective",
        "at": "gradient",
        "published": False,
        "accountant": accountant,
        "answers": answers,
        "per_answer": per_answer,
        "paper_epsilon": per_answer,
        "paper_delta": None,
        "delta": delta,
        "rounds": answers,
        "capped": False,
        "epsilon": accounting.claimed_epsilon(accountant, per_answer, answers, delta),
    }
    return Terms(**given | over)


class Free:
    """Nobody's budget."""

    def authorise(self, spends): ...
    def committed(self, spends): ...


class Silent:
    """No noise: the value on the grid, as it would be released."""

    sampler = source = "silent"

    def take(self, lattice, size, answer):
        return np.zeros(size, dtype=np.int64)

    def refill(self, lattice, size, answers): ...


def gate(loss, t, noise=None, authority=None):
    return RowsGate("n0", loss, t, noise or Silent(), authority or Free())


def device(directory, t, cap=None):
    """A real ledger and budget check: (ledger, budget check)."""
    ledger = Ledger(directory / "n0.ledger", "n0")
    ledger.join(b"run", b"plan")
    return ledger, BudgetCheck("n0", ledger, b"run", plan().algorithm, t, cap, Allow(), simulated=True)


def commit(ledger, one):
    ledger.commit(b"run", spends=one.spends)
    one.committed()


def problem(m=6, d=3, seed=0, kind="logistic", bound=1.0, **objective):
    """Rows on the unit sphere."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, d))
    A /= np.linalg.norm(A, axis=1)[:, None]
    b = rng.integers(0, 3, m).astype(float) if kind == "softmax" else np.sign(rng.normal(size=m))
    return Loss(Objective(kind=kind, **objective), A, b, classes=3 if kind == "softmax" else 1, row_bound=bound)
