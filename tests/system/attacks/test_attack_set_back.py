"""An old copy of a ledger is put back within a masked run, and the same round is asked at another point.

The promise: two questions never share a pad, so no difference of two answers shows, whatever a device has forgotten.
"""

import shutil

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.patterns.masked import Ask
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.plan import decode_plan
from tests.support.daemons.attacked_device import Target
from tests.support.daemons.invented_members import Authority, meet, share, two_doors
from tests.support.daemons.lying_coordinator import Liar, honest_plan

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
M, Q, DELTA = 200, 8, 1e-5
NAMES = ("n0", "n1", "n2", "n3")
REPLACED = {"replace-one-record": {"clip": 1.0}}
SCENARIO = {
    "hushgrid": 1,
    "name": "masked",
    "algorithm": {"name": "fedavg", "rounds": 2, "step_size": 1.0},
    "problem": {
        "kind": "logistic",
        "row_bound": 1.0,
        "data": {"devices": {"features": Q, "rows": M}, "nodes": len(NAMES)},
    },
    "privacy": {
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": 1.0,
        "delta": DELTA,
        "adjacency": REPLACED,
        "masked": {"corrupt": 0},
    },
}


def gradient(A, b, x):
    return np.mean(-(b / (1 + np.exp(b * (A @ x))))[:, None] * A, axis=0)


def test_a_device_that_is_set_back_within_a_run_gives_no_difference_away(tmp_path, mosquitto_program, stack, show):
    """Epsilon of two answers as the coordinator sees them: before 2.15, each answer's own share of the noise against
    one device and no sum; now the 1 that is claimed, for no message says anything without the others'."""
    place, authority = two_doors(tmp_path, stack, "n0"), Authority()
    rng = np.random.default_rng(7)
    A = rng.normal(size=(M, Q))
    A /= np.linalg.norm(A, axis=1).max()
    b = np.where(A[:, 0] > 0, 1.0, -1.0)
    (tmp_path / "n0").mkdir()
    np.savez(tmp_path / "n0" / "rows.npz", A=A, b=b)
    masked = {"corrupt": 0, "honest": 4, "alone": 9.0, "ca": authority.save(tmp_path / "owners.pem")}
    config = {
        "tls": {
            "ca": str(place.certs / "ca.crt"),
            "cert": str(place.certs / "n0.crt"),
            "key": str(place.certs / "n0.key"),
        },
        "data": str(tmp_path / "n0" / "rows.npz"),
        "labels": {"classes": 2},
        "budget": {"epsilon": 5.0, "delta": DELTA, "adjacency": REPLACED},
        "allow": {"algorithms": ["fedavg"], "masked": masked},
    }
    device = Target(tmp_path / "n0", place.devices, stack, "n0", config, mark=False)
    device.start()
    liar = stack.enter_context(Liar(place.adversary, ["n0"]))
    plan = honest_plan(SCENARIO)
    run = liar.announce(plan, others=NAMES[1:])
    assert liar.joined(run, "n0")
    assert meet(
        liar, run, "n0", NAMES[1:], authority
    )  # the others are not asked: their keys play no part in what follows
    device.daemon.end()
    shutil.copytree(device.state, tmp_path / "backup")
    words, points = [], (np.zeros(Q), np.full(Q, 2.0))
    for x in points:
        shutil.rmtree(device.state)
        shutil.copytree(tmp_path / "backup", device.state)
        device.start()
        words.append(share(liar, run, "n0", Ask(1, 1, NAMES, x)))
        device.daemon.end()
    assert all(words)
    first, second = (np.frombuffer(one, dtype="<u8") for one in words)
    read = decode_plan(msgspec.json.encode(plan))
    lattice, t = noise_shares(read)[0].lattice, read.terms
    difference = (second - first).view(np.int64).astype(np.float64) * lattice.g
    truth = gradient(A, b, points[1]) - gradient(A, b, points[0])
    off = float(np.max(np.abs(difference - truth))) / lattice.scale
    show(
        f"the difference of two gradients is found to {off:.3g} standard deviations of one share; two answers by "
        f"themselves are worth epsilon {t.alone(2):.3g}, in sums {t.cost(2):.3g}"
    )
    assert off > 1e6  # by chance within it: once in 10^12
    assert t.alone(2) > 2 * t.cost(2)
