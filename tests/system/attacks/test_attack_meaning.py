"""The unit of a promise is chosen by the liar: a `scale` in the plan makes a bounded change mean nothing; another clip,
another budget.

The promise: what gives a relation its meaning is the owner's, and one relation has one number.
"""

import json
import subprocess

import numpy as np
import pytest

from hushgrid.kernels.patterns.token import Leg, Token
from hushgrid.node.wire import Refuse
from tests.support.daemons.attacked_device import Target, rows_config
from tests.support.daemons.deployed_fleet import HUSHGRID
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

M, Q = 20, 4
CLIPS = (1.0, 1.001, 1.002)


def rows(seed):
    """Records of norm 1, the last one unknown to the adversary."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(M, Q))
    return A / np.linalg.norm(A, axis=1, keepdims=True), np.where(rng.random(M) < 0.5, 1.0, -1.0)


def first_gradient(liar, plan, rho):
    """What n0's gate answers at x = 0, by guarded I-ADMM (8), (4b), (5) from the token z = 0: z+ = -2 g/(rho N), N = 2.

    None where it does not take part, or refuses.
    """
    run = liar.announce(plan, others=["n1"])
    if not liar.joined(run, "n0"):
        return None
    liar.say(run, "n0", Token((), Leg(), 0, (np.zeros(Q),)), 1, src="n1")
    reply = liar.reply(run, "n0", Refuse, Token)
    if isinstance(reply, Refuse):
        return None
    liar.finish(run, "n0", "stopped")
    return -rho * reply.vectors[0]


def scenario(adjacency, epsilon, scale=1.0, rho=1.0):
    return {
        "hushgrid": 1, "name": "meaning",
        "problem": {
            "kind": "logistic", "data": {"devices": {"features": Q, "rows": M}}, "row_bound": 1.0, "scale": scale,
        },
        "network": {"kind": "path", "nodes": 2},
        "algorithm": {"name": "iadmm", "rho": rho, "rounds": 3, "walk": [1, 0, 1]},
        "privacy": {"adjacency": adjacency, "epsilon": epsilon, "answers": 1},
    }  # fmt: skip


@pytest.mark.parametrize("scale", [1e6, 1e7], ids=["within its range", "beyond it"])
def test_a_record_is_not_read_by_a_large_scale_under_bounded_change(tmp_path, url, stack, show, scale):
    """The owner promises that the gradient of his problem, scale 1, moves by at most 0.01; the liar's is a million
    times that.
    """
    (A, b), epsilon, beta = rows(1), 0.3, 0.01
    unit = {"bounded-change": beta}
    config = rows_config(
        tmp_path / "n0", A, b, unit, 20.0, epsilon, labels={"classes": 2},
        problem={"kind": "logistic", "scale": 1.0, "row_bound": 1.0},
    )  # fmt: skip
    device = Target(tmp_path / "n0", url, stack, "n0", config)
    device.start()
    liar = stack.enter_context(Liar(url, ["n0"]))
    spoiled = {"problem.objective.scale": scale, "problem.L": [scale / 4] * 2, "algorithm.rho": scale}
    g = first_gradient(liar, altered(honest_plan(scenario(unit, epsilon)), spoiled), scale)
    device.daemon.end()
    paid = device.account()
    error = np.inf
    if g is not None:  # g = -scale/m sum_j b_j a_j/2: the others' part is known
        found = -2 * M / scale * g - b[:-1] @ A[:-1]
        error = float(np.max(np.abs(found - b[-1] * A[-1])))
    honest = 2 * M * beta / epsilon  # what the noise of one answer hides of a record, at the owner's scale
    show(
        f"the record b a is found to {error:.2g} a coordinate at epsilon {paid.epsilon:.3g} "
        f"(noise of the owner's own problem: {honest:.2g})"
    )
    assert g is None  # a problem that is not the owner's is refused
    assert error > honest / 100  # a coordinate is this near by chance once in a hundred, four of them in 10^8


def test_the_clip_of_a_plan_buys_no_second_budget(tmp_path, url, stack, show):
    """The owner follows the plan's clip, as a coordinator asks; his budget stays what it was."""
    A, b = rows(2)
    answered = 0
    for clip in CLIPS:
        replaced = {"replace-one-record": {"clip": clip}}
        config = rows_config(tmp_path / "n0", A, b, replaced, 1.0, labels={"classes": 2})
        device = Target(tmp_path / "n0", url, stack, "n0", config)
        device.start()
        with Liar(url, ["n0"]) as liar:
            answered += first_gradient(liar, honest_plan(scenario(replaced, 1.0)), 1.0) is not None
        device.daemon.end()
    said = json.loads(device.ledger_command("show", "--json").stdout)
    totals = [f"{t['adjacency']}: spent {t['epsilon']:.3g} of {t['budget']}" for t in said["totals"]]
    show(f"{answered} answers of epsilon 1 each under a budget of 1; ledger: {'; '.join(totals)}")
    assert answered == 1
    assert len(said["totals"]) == 1


def test_another_clip_is_no_other_budget_in_simulation(tmp_path, show):
    """`hushgrid run --state`: the same ledgers over three scenarios, each with a budget of 1 in its own words."""
    codes = []
    for clip in CLIPS:
        replaced = {"replace-one-record": {"clip": clip}}
        file = tmp_path / f"clip-{clip}.yaml"
        made = scenario(replaced, 1.0)
        made["problem"]["data"] = {"synthetic": {"rows": 2 * M, "features": Q}, "nodes": 2, "normalize": "unit-rows"}
        made["privacy"]["budget"] = {"epsilon": 1.0, "adjacency": replaced}
        file.write_text(json.dumps(made))
        command = [*HUSHGRID, "run", str(file), "--state", str(tmp_path / "state"), "--out", str(tmp_path / f"{clip}")]
        codes.append(subprocess.run([*command, "--quiet"], capture_output=True, text=True, timeout=300).returncode)
    show(f"three runs of epsilon 1 under a budget of 1 end with {codes}")
    assert codes == [0, 3, 3]
