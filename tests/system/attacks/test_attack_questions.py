"""A device whose owner had a logistic model in mind is asked how many of its labels are of which kind.

The promise: a declared `problem` refuses every other kind of question, `allow.problems` is the one list of questions,
and `hushgrid check` prints each of them.
"""

import subprocess

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Refuse
from tests.support.daemons.attacked_device import Target, rows_config
from tests.support.daemons.deployed_fleet import HUSHGRID
from tests.support.daemons.lying_coordinator import Liar, honest_plan

M, Q, BUDGET = 40, 4, 8.0
REPLACED = {"replace-one-record": {"clip": 1.0}}
EDGES = [-1.0, 0.5, 2.0]
LOGISTIC = {"kind": "logistic", "scale": 1.0, "row_bound": 1.0}


def histogram(column=Q, edges=EDGES):
    """One answer at the device's whole budget: the labels of its records, counted."""
    return {
        "hushgrid": 1, "name": "labels", "algorithm": {"name": "sum"},
        "problem": {
            "kind": "histogram", "column": column, "edges": edges,
            "data": {"devices": {"features": Q, "rows": M}, "nodes": 2},
        },
        "privacy": {"adjacency": REPLACED, "epsilon": BUDGET},
    }  # fmt: skip


def counted(liar, scenario):
    """What n0 answers to a statistic; a Refuse where it does not take part."""
    run = liar.announce(honest_plan(scenario), others=["n1"])
    if not liar.joined(run, "n0"):
        return liar.reply(run, "n0", Refuse)
    liar.say(run, "n0", W(np.zeros(2)), 1)
    said = liar.reply(run, "n0", Refuse, Z)
    liar.farewell(run, "n0", "stopped")
    return said


@pytest.fixture
def target(tmp_path, url, stack):
    """A device with 31 labels of 40 above zero, by what its owner declares."""

    def made(problem=None, problems=None):
        A = np.random.default_rng(5).normal(size=(M, Q))
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        b = np.where(np.arange(M) < 31, 1.0, -1.0)
        algorithms = ["fedavg", "sum"]
        config = rows_config(
            tmp_path / "n0", A, b, REPLACED, BUDGET, labels={"classes": 2}, problem=problem, algorithms=algorithms
        )
        if problems is not None:
            config["allow"]["problems"] = problems
        device = Target(tmp_path / "n0", url, stack, "n0", config)
        device.start()
        return device, stack.enter_context(Liar(url, ["n0"]))

    return made


def test_a_histogram_of_labels_is_not_asked_of_a_device_that_is_declared_for_a_logistic_model(target, show):
    """Epsilon of the answer: 8, the whole budget, before; 0 now."""
    device, liar = target(problem=LOGISTIC)
    said = counted(liar, histogram())
    device.daemon.end()
    paid = device.account()
    show(f"labels above zero: {said.z[1] if isinstance(said, Z) else said.reason}; ledger: epsilon {paid.epsilon:g}")
    assert isinstance(said, Refuse)
    assert "found a plan for histogram of column 4, 3 edges, expected one for its own logistic" in said.reason
    assert (paid.answers, paid.epsilon) == (0, 0.0)


def test_a_list_of_questions_lets_these_pass_and_no_others(target, show):
    """Its owner allows a histogram of one feature: of the labels, or in finer bins, it is refused; epsilon 0 until it
    is asked that.
    """
    device, liar = target(problems=[{"kind": "logistic"}, {"kind": "histogram", "column": 0, "edges": EDGES}])
    refused = [counted(liar, wrong) for wrong in (histogram(), histogram(0, [-2.0, -1.0, 0.0, 2.0]))]
    answered = counted(liar, histogram(0))
    device.daemon.end()
    paid = device.account()
    show(f"{[said.reason for said in refused]}; of column 0: {answered}")
    assert all(
        isinstance(said, Refuse) and "its owner allows logistic; histogram of column 0" in said.reason
        for said in refused
    )
    assert isinstance(answered, Z)
    assert paid.answers == 1
    said = subprocess.run([*HUSHGRID, "check", str(device.file)], capture_output=True, text=True, timeout=300).stdout
    assert [line.strip().split(":")[0] for line in said.splitlines() if line.startswith("  answers ")] == [
        "answers logistic", "answers histogram"
    ]  # fmt: skip
