"""A real device that dies within a step, between the draw of its noise and the commit: what was drawn is paid.

The program has no hook for it: Python runs `sitecustomize` first, which ends the process in the place of a commit.
"""

import os
import shutil
from contextlib import closing

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.patterns.token import Leg, Notice, Token
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, rows_config, zone_config
from tests.support.daemons.deployed_fleet import PATIENCE
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan
from tests.support.daemons.small_daemons import spends_by_run

#: Run by Python before the program: the first commit of a step with spends ends the process.
DIES = """
import importlib.abc, importlib.machinery, os, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "hushgrid.node.privacy.ledger":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            commit = module.Ledger.commit

            def dies(self, run, *, spends=(), **more):
                if spends if os.environ["HUSHGRID_TEST_DIES_AT"] == "spends" else "state" in more:
                    os._exit(9)
                return commit(self, run, spends=spends, **more)

            module.Ledger.commit = dies

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def dying(target, tmp_path, at="spends", ready=True):
    """The device, started so that it dies in the place of its first commit of spends, or of a state."""
    (tmp_path / "sitecustomize.py").write_text(DIES)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return target.start(ready=ready, PYTHONPATH=paths, HUSHGRID_TEST_DIES_AT=at)


def answer(liar, run, w):
    """What z1 says to `w` in round 1."""
    liar.say(run, "z1", W(w), 1)
    found = liar.reply(run, "z1", Z, Refuse)
    assert isinstance(found, Z), found
    return found


@pytest.fixture
def zone(tmp_path, url, stack):
    return Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1"))


def plan_of(mode):
    return altered(honest_plan(SCENARIO), {"privacy.mode": mode, "privacy.epsilon": 5.0})


def dead(zone, tmp_path, url, stack, mode):
    """(liar, run, its question) of a device that has died over its answer."""
    daemon = dying(zone, tmp_path)
    liar = stack.enter_context(Liar(url, ["z1"]))
    run = liar.announce(plan_of(mode))
    assert liar.joined(run, "z1")
    w = np.zeros(liar.birth("z1").capabilities.dimension)
    liar.say(run, "z1", W(w), 1)
    assert daemon.code() == 9
    assert liar.replies(run, "z1", Z) == []
    assert spends_by_run(zone.ledger) == {}
    return liar, run, w


def paid(zone):
    zone.daemon.end()
    return spends_by_run(zone.ledger)


@pytest.mark.parametrize("mode", ["objective", "input"])
def test_what_was_drawn_is_paid_before_anything_is_asked_again(mode, zone, tmp_path, url, stack):
    liar, run, _ = dead(zone, tmp_path, url, stack, mode)
    zone.start()
    assert paid(zone) == {run: 1}
    assert liar.replies(run, "z1", Z) == []


@pytest.mark.parametrize("mode", ["objective", "input"])
def test_the_same_question_gets_the_bytes_that_were_drawn_and_costs_no_second_spend(mode, zone, tmp_path, url, stack):
    """The device as it was when it died, started twice: were its noise drawn again, the answers would be two."""
    liar, run, w = dead(zone, tmp_path, url, stack, mode)
    places = (zone.state, zone.mark.parent)  # not its loads: a copy of their file would be new data
    for place in places:
        shutil.copytree(place, tmp_path / "as it was" / place.name)
    found = []
    for _ in range(2):
        for place in places:
            shutil.rmtree(place)
            shutil.copytree(tmp_path / "as it was" / place.name, place)
        zone.start()
        liar.heard.clear()
        found.append(answer(liar, run, w).z.tobytes())
        assert paid(zone) == {run: 1}
    assert found[0] == found[1]


def test_a_device_that_dies_over_its_answer_again_and_again_has_drawn_and_paid_once(zone, tmp_path, url, stack):
    liar, run, w = dead(zone, tmp_path, url, stack, "objective")
    for _ in range(3):
        liar.heard.clear()
        # The spend is paid at the start; the step is not committed. What was said before may kill it as soon as it
        # listens.
        daemon = dying(zone, tmp_path, at="state", ready=False)
        liar.say(run, "z1", W(w), 1)
        assert daemon.code() == 9
        assert liar.replies(run, "z1", Z) == []
        assert spends_by_run(zone.ledger) == {run: 1}
    zone.start()
    answer(liar, run, w)
    assert paid(zone) == {run: 1}


def test_another_question_costs_another_spend(zone, tmp_path, url, stack):
    """In another run, at the same terms: what was drawn for the first one is not its noise."""
    liar, run, w = dead(zone, tmp_path, url, stack, "objective")
    zone.start()
    liar.roll_call("z1")
    other = liar.announce(plan_of("objective"))
    assert liar.joined(other, "z1")
    answer(liar, other, w)
    assert paid(zone) == {run: 1, other: 1}


# --- rows: a question is a point ---


@pytest.mark.parametrize("asked", ["the same", "another"])
def test_of_rows_the_same_point_is_paid_once_and_another_point_again(asked, tmp_path, url, stack):
    dice = np.random.default_rng(1)
    A = dice.normal(size=(6, 3))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    clip = {"replace-one-record": {"clip": 1.0}}
    config = rows_config(
        tmp_path / "n0", A.tolist(), [1.0, -1.0] * 3, clip, 100.0, labels={"classes": 2}, algorithms=("iadmm",)
    )
    target = Target(tmp_path / "n0", url, stack, "n0", config)
    scenario = {
        "hushgrid": 1, "name": "demo", "network": {"kind": "path", "nodes": 2},
        "problem": {"kind": "logistic", "data": {"devices": {"features": 3, "rows": 6}}, "row_bound": 1.0},
        "algorithm": {"name": "iadmm", "rounds": 4, "rho": 1.0, "update": "exact", "walk": [1, 0, 1, 0]},
        "privacy": {"adjacency": clip, "epsilon": 40.0},
    }  # fmt: skip
    daemon = dying(target, tmp_path)
    liar = stack.enter_context(Liar(url, ["n0"]))
    run = liar.announce(honest_plan(scenario), others=["n1"])
    assert liar.joined(run, "n0")
    point = np.array([0.5, 0.0, -0.5])
    liar.say(run, "n0", Notice(), 1)
    token = Token((), Leg(), 0, (point,))
    liar.say(run, "n0", token, 1, src="n1")
    assert daemon.code() == 9
    if asked == "another":  # the broker keeps the first question for it, and would ask it again
        with closing(MqttLink(url, "n0", persistent=False)) as clean:
            clean.connect(PATIENCE)
    target.start()
    again = token if asked == "the same" else Token((), Leg(), 0, (2 * point,))
    liar.say(run, "n0", again, 1, src="n1")
    first = liar.reply(run, "n0", Token, Refuse)
    assert isinstance(first, Token), first
    target.daemon.end()
    assert spends_by_run(target.ledger) == {run: 1 if asked == "the same" else 2}
    with closing(Ledger(target.ledger, "n0", target.mark)) as ledger:
        assert ledger.verify() == []
