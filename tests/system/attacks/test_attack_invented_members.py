"""A coordinator writes a plan for 500 devices, relies on 498 honest ones, and has made up 499 of them.

The promise: a share is paid at the number of honest devices that its owner believes in, whatever a plan says, and
whoever certifies the fleet certifies no member of a masked run.
"""

import shutil

import numpy as np
import pytest
import yaml

from hushgrid.kernels.patterns.masked import Ask
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support.daemons.attacked_device import Target
from tests.support.daemons.invented_members import Authority, meet, share, two_doors
from tests.support.daemons.lying_coordinator import Liar
from tests.support.scenarios.guarded_plans import DELTA, sum_of

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
NODES, CORRUPT, HONEST = 500, 2, 5
CLAIM = 0.0961  #: epsilon of the plan
NAMES = [f"n{i}" for i in range(NODES)]


@pytest.fixture
def place(tmp_path, mosquitto_program, stack):
    return two_doors(tmp_path, stack, "n0")


def target(place, directory, stack, ca, budget):
    """A device with 50 rows, whose owner believes in five honest contributors."""
    (directory / "n0").mkdir()
    rng = np.random.default_rng(1)
    np.savez(directory / "n0" / "rows.npz", A=rng.normal(size=(50, 3)), b=np.ones(50))
    masked = {"corrupt": CORRUPT, "honest": HONEST, "alone": 9.0, "ca": ca}
    config = {
        "tls": {
            "ca": str(place.certs / "ca.crt"),
            "cert": str(place.certs / "n0.crt"),
            "key": str(place.certs / "n0.key"),
        },
        "data": str(directory / "n0" / "rows.npz"),
        "labels": {"classes": 2},
        "budget": {"epsilon": budget, "delta": DELTA, "adjacency": {"replace-one-record": {"clip": 1.0}}},
        "allow": {"algorithms": ["sum"], "masked": masked},
    }
    return Target(directory / "n0", place.devices, stack, "n0", config)


def answers_one(liar, authority):
    """Whether n0 answers one question, masked with the 499 that do not exist: by their keys the coordinator reads its
    share.
    """
    blob = encode_plan(sum_of(NODES, CORRUPT, CLAIM))
    run = liar.announce(blob, others=NAMES[1:])
    if not liar.joined(run, "n0"):
        return False
    assert meet(liar, run, "n0", NAMES[1:], authority)
    among = tuple(sorted(NAMES))
    answered = share(liar, run, "n0", Ask(1, 1, among, np.zeros(3))) is not None
    liar.farewell(run, "n0", "stopped")
    return answered


def worth(honest):
    """Epsilon of the device's share of the plan, if so many are honest."""
    (one, *_) = noise_shares(decode_plan(encode_plan(sum_of(NODES, CORRUPT, CLAIM))))
    return gdp_epsilon(one.alone / honest**0.5, DELTA)


def test_a_share_is_paid_at_the_owners_five_honest_ones_and_not_at_the_plans_498(place, tmp_path, stack, show):
    """Epsilon of the answer in the ledger: .096 before, 1.19 now; alone, as here, it is worth 2.9, and the ledger says
    that too.
    """
    authority = Authority()
    device = target(place, tmp_path, stack, authority.save(tmp_path / "owners.pem"), 3.0)
    device.start()
    liar = stack.enter_context(Liar(place.adversary, ["n0"]))
    answered = answers_one(liar, authority)
    device.daemon.end()
    paid, text = device.account(), device.ledger_command("show").stdout
    show(
        f"answered: {answered}; booked {paid.epsilon:.3g}, worth {worth(HONEST):.3g} with {HONEST} honest, "
        f"{worth(1):.3g} alone"
    )
    assert answered
    assert paid.epsilon >= worth(HONEST) * (1 - 1e-9) == pytest.approx(1.19, rel=0.01)
    assert "at 5 honest, where the plan says 498" in text
    assert f"its shares alone: epsilon {worth(1):.4g}" in text


def test_a_plan_that_breaks_the_budget_under_the_owners_belief_is_refused_before_its_first_answer(
    place, tmp_path, stack, show
):
    """A budget of 1: before, ten such plans of .096 were answered, together worth 4.3 with five honest ones."""
    authority = Authority()
    device = target(place, tmp_path, stack, authority.save(tmp_path / "owners.pem"), 1.0)
    device.start()
    liar = stack.enter_context(Liar(place.adversary, ["n0"]))
    answered = answers_one(liar, authority)
    device.daemon.end()
    paid = device.account()
    show(
        f"answered: {answered}, under a budget of 1 at {worth(HONEST):.3g} by the owner's belief; ledger: "
        f"{paid.epsilon:.3g}"
    )
    assert not answered
    assert (paid.answers, paid.epsilon) == (0, 0.0)


def test_the_authority_of_the_fleet_certifies_no_member_whatever_its_file_is_called(place, tmp_path, stack, show):
    """Who holds ca.key is the coordinator, often: the 499 members would be its own. Before, it was accepted in
    silence.
    """
    other = tmp_path / "owners-authority.pem"
    shutil.copy2(place.certs / "ca.crt", other)
    device = target(place, tmp_path, stack, str(other), 3.0)
    daemon = device.start(ready=False)
    code = daemon.code()
    show(f"it ends with {code}: {daemon.said.strip()[-200:]}")
    assert code == 2
    assert f"allow.masked.ca: {other}: found the key of the fleet's own authority (tls.ca)" in daemon.said
    assert yaml.safe_load(device.file.read_text())["allow"]["masked"]["ca"] == str(other)
