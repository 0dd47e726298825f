"""A step that fails as a function of an answer: the liar chooses the plan's numbers so that it does, and asks again.

The promise: an answer drawn is an answer paid, whatever becomes of the step; and no refusal tells how it failed.
"""

import math
import sys

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.patterns.token import Leg, Token
from hushgrid.node import wire
from hushgrid.node.wire import Envelope, Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, rows_config, zone_config
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

HUGE, LARGEST = sys.float_info.max, 2.0**40  #: of a float; of an entry of a message, and of an iterate
TRUE = 94.2  #: MW, the load of bus 3, the largest of zone z1
SCALE = 0.2  #: MW: Laplace noise of epsilon 5 at a bounded change of 1 MW
EPSILON_ASKED, ASKS = 5.0, 614
#: (eta, rho, w): the step fails of a dual or a solver if a plan's numbers are as far out as their ranges allow
FAR_OUT = [
    (eta, rho, w)
    for eta in (1e-9, 1e9, "1/(L+sqrt(t))")
    for rho in (1e-9, 1.0, 1e9)
    for w in (0.0, 1.0, -1099.6, 1e7, LARGEST, -LARGEST)
]


class Asker:
    """Asks the one answer of a run of zone z1, under any numbers: what it says, without the run's own numbers."""

    def __init__(self, liar, **changes):
        self.liar, self.plan = liar, altered(honest_plan(SCENARIO), changes)
        self.size = liar.birth("z1").capabilities.dimension
        self.questions = self.answered = 0  #: put to the gate, in runs that were joined; and answered
        self.sentences = set()  #: payloads of refusals after the question, but for the run's id and the mark

    def __call__(self, eta, rho, w):
        """The device's last word; None if it does not even join."""
        run = self.liar.announce(altered(self.plan, {"algorithm.eta": eta, "algorithm.rho": rho}))
        if not self.liar.joined(run, "z1"):
            return None
        self.questions += 1
        self.liar.say(run, "z1", W(np.full(self.size, w)), 1)
        said = self.liar.reply(run, "z1", Refuse, Z)
        if isinstance(said, Z):
            self.answered += 1
            return "answered"
        heard = next(h.envelope for h in self.liar.heard[run] if isinstance(h.envelope.body, Refuse))
        self.sentences.add(wire.encode(Envelope(b"", heard.epoch, heard.seq, None, heard.body)))
        return said.reason

    def overflows_beyond(self, load_mw):
        """By numbers of any size: max|g|, g = 2 A'(A z + d + noise) at the flat start, times eta, overflows, or not."""
        tau = 2 * load_mw / 100
        return self(min(HUGE / tau, HUGE), 1e100, 0.0)

    def leaves_its_bounds_beyond(self, load_mw):
        """By numbers within their ranges: the dual rho (w - z) leaves the bound of an iterate if z is small enough."""
        return self(1e9, 1e9, LARGEST / 1e9 - load_mw / 100)


def device(tmp_path, url, stack, budget=20.0):
    target = Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1", budget))
    target.start()
    return target


@pytest.mark.parametrize("how", [Asker.overflows_beyond, Asker.leaves_its_bounds_beyond])
def test_a_load_is_not_found_by_steps_that_overflow_or_leave_their_bounds(tmp_path, url, stack, show, how):
    """614 questions under a budget for four. The liar searches as if its replies told it something, and is led
    astray.
    """
    zone = device(tmp_path, url, stack)
    liar = stack.enter_context(Liar(url, ["z1"]))
    ask = Asker(liar)
    passed, below = how(ask, 51.0), how(ask, 1e5)  # what it says of a threshold far too low, and far too high
    low, high, found = 0.0, 200.0, 100.0
    for _ in range(8):  # to less than a MW: noise seldom matters yet
        low, high = (found, high) if how(ask, found) == passed else (low, found)
        found = (low + high) / 2
    walk = [found]  # H. Robbins, S. Monro (1951), averaged (B. Polyak, A. Juditsky, 1992)
    while liar.asked < ASKS:
        walk.append(walk[-1] + SCALE / len(walk) ** 0.5 * (1 if how(ask, walk[-1]) == passed else -1))
    found = float(np.mean(walk[len(walk) // 8 :]))
    zone.daemon.end()
    paid = zone.account()
    show(
        f"bus 3: {found:.3f} MW (true {TRUE}) from {liar.asked} plans and {ask.questions} answers, nominal epsilon "
        f"{EPSILON_ASKED * ask.questions:g}; ledger: {paid.answers} answers, epsilon {paid.epsilon:g}"
        f"\n    it says {passed!r} or {below!r}"
    )
    assert ask.questions == paid.answers  # each question was put to the gate, and drew fresh noise
    assert paid.epsilon <= 20.0
    assert len(ask.sentences) <= 1
    assert abs(found - TRUE) > 20 * SCALE


def test_614_questions_that_fail_or_not_are_614_answers_paid(tmp_path, url, stack, show):
    """Under a budget for all of them. Whatever fails, and however, one sentence is all that is said of it."""
    zone = device(tmp_path, url, stack, budget=EPSILON_ASKED * ASKS)
    ask = Asker(stack.enter_context(Liar(url, ["z1"])))
    for k in range(ASKS):
        ask(*FAR_OUT[k % len(FAR_OUT)])
    zone.daemon.end()
    paid = zone.account()
    show(
        f"{ask.questions} questions, {ask.answered} answered, {len(ask.sentences)} different refusals of the others; "
        f"ledger: {paid.answers} answers, epsilon {paid.epsilon:g}"
    )
    assert (ask.questions, paid.answers) == (ASKS, ASKS)
    assert paid.epsilon == pytest.approx(EPSILON_ASKED * ASKS, rel=2.0**-9)  # a grid makes an answer that much cheaper
    assert 0 < ask.answered < ASKS
    assert len(ask.sentences) == 1


@pytest.mark.long
def test_in_mode_input_614_questions_that_fail_or_not_are_one_answer_paid_and_repeated(tmp_path, url, stack, show):
    zone = device(tmp_path, url, stack)
    ask = Asker(stack.enter_context(Liar(url, ["z1"])), **{"privacy.mode": "input"})
    said = [ask(*FAR_OUT[k % len(FAR_OUT)]) for k in range(ASKS)]
    zone.daemon.end()
    paid = zone.account()
    show(f"{ask.questions} questions about one noisy load, {ask.answered} answered; ledger: {paid.answers} answers")
    assert (ask.questions, paid.answers) == (ASKS, 1)
    assert 0 < ask.answered < ASKS
    assert len(ask.sentences) == 1
    assert [word == "answered" for word in said] == [
        said[k % len(FAR_OUT)] == "answered" for k in range(ASKS)
    ]  # one draw of noise, whatever is asked of it and however often


# --- rows ---

M, EPSILON = 20, 2.0  #: rows; epsilon of one run
REFUSALS, BUDGET = 60, 100.0
FAR = 100.0  #: times its public bound of stability that a step may be long


@pytest.mark.parametrize("label", [1.0, -1.0])
@pytest.mark.parametrize("end", ["overflows", "leaves the bounds of an iterate"])
def test_a_label_is_not_read_from_refused_answers(tmp_path, url, stack, show, label, end):
    """Guarded I-ADMM on one feature: all records are a = 1, and the adversary knows every label but the last.

    The node before the device hands it a token z so large, with rho so small, that x = z - g/rho and z+ = z/2 + x pass
    a limit where its noisy gradient g lies below a threshold, and only there: their sum 5/2 z - 2 g/rho the largest
    number, or z+ = 3/2 z - g/rho the bound of an iterate, if there is one.
    """
    limit, of_z, of_g = (HUGE, 2.5, 2.0) if end == "overflows" else (LARGEST, 1.5, 1.0)
    b = [1.0, -1.0] * (M // 2 - 1) + [1.0, label]
    replaced = {"replace-one-record": {"clip": 1.0}}
    config = rows_config(
        tmp_path / "n0", [[1.0]] * M, b, replaced, BUDGET, EPSILON, labels={"classes": 2}, algorithms=["iadmm"]
    )
    device = Target(tmp_path / "n0", url, stack, "n0", config)
    device.start()
    liar = stack.enter_context(Liar(url, ["n0"]))
    scale = 2 / (M * EPSILON)  # of the noise
    # Within its range rho is as small as a step may be long: a thousandth of the noise moves z+ by more than z's last
    # bit.
    rho = scale / (0.01 * limit) if end == "overflows" else 1.001 * 0.25 / FAR
    plan = honest_plan(
        {
            "hushgrid": 1, "name": "label",
            "problem": {"kind": "logistic", "data": {"devices": {"features": 1, "rows": M}}, "row_bound": 1.0},
            "network": {"kind": "path", "nodes": 2},
            "algorithm": {"name": "iadmm", "rho": 1.0, "rounds": 3, "walk": [1, 0, 1]},
            "privacy": {"adjacency": replaced, "epsilon": EPSILON, "answers": 1},
        }
    )  # fmt: skip
    plan = altered(plan, {"algorithm.rho": rho})
    known = -sum(b[:-1]) / (2 * M)  # of g; the last record adds -label/(2 m)
    z = limit / of_z + of_g * known / (of_z * rho)
    refused = released = 0
    sentences = set()
    while refused < REFUSALS and refused + released < 4 * REFUSALS:
        run = liar.announce(plan, others=["n1"])
        if not liar.joined(run, "n0"):
            break  # its budget is used up, or the plan is not taken
        liar.say(run, "n0", Token((), Leg(), 0, (np.array([z]),)), 1, src="n1")
        liar.farewell(run, "n0", "stopped")
        if not (said := liar.replies(run, "n0", Refuse, Token)):
            break  # the token was dropped
        refused, released = refused + isinstance(said[0], Refuse), released + isinstance(said[0], Token)
        sentences |= {wire.encode(body) for body in said if isinstance(body, Refuse)}
    device.daemon.end()
    paid = device.account()
    each = math.exp(-0.5)  # P(refused) is 1 - each/2 for label 1, each/2 for -1
    odds = (refused - released) * math.log((1 - each / 2) / (each / 2))
    show(
        f"label {label:+g}: {refused} refused and {released} released answers, log odds of +1 to -1: {odds:+.1f}; "
        f"ledger: {paid.answers} answers, epsilon {paid.epsilon:g}"
    )
    assert refused + released == paid.answers
    assert paid.answers == (0 if end == "overflows" else BUDGET / EPSILON)  # out of range, and refused; or all paid
    assert paid.epsilon <= BUDGET
    assert len(sentences) <= 1
