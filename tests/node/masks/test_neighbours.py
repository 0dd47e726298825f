"""Masks among few neighbours: whom a device picks, and by what its pads are named."""

from collections import Counter
from contextlib import closing
from math import comb

import numpy as np
import pytest

from hushgrid.kernels.patterns.masked import digest
from hushgrid.node.masks import run_masks
from hushgrid.node.masks.identity import made_up
from hushgrid.node.masks.run_masks import RunMasks
from hushgrid.node.privacy.ledger import Ledger

RUN = b"r" * 16
NODES = ["n0", "n1", "n2", "n3"]
X = np.array([0.5, -1.0])
CERTIFICATES, TRUST = made_up(NODES)


def opened(place, node, run=RUN):
    ledger = Ledger(place / f"{node}.ledger", node, durable=False)
    if ledger.runs.find(run) is None:
        ledger.join(run, b"plan")
    return ledger


def device(ledger, run=RUN, exposed=0.0):
    return RunMasks(ledger.node, run, ledger, CERTIFICATES[ledger.node], TRUST, exposed)


@pytest.fixture
def devices(tmp_path):
    """Four devices on a path n0 - n1 - n2 - n3, and whom each has as neighbours, with the digests of theirs."""
    near = {"n0": ["n1"], "n1": ["n0", "n2"], "n2": ["n1", "n3"], "n3": ["n2"]}
    ledgers = [opened(tmp_path, node) for node in NODES]
    made = {ledger.node: device(ledger) for ledger in ledgers}
    shown = {node: masks.introduction() for node, masks in made.items()}
    for node, masks in made.items():
        masks.meet({other: shown[other] for other in (node, *near[node])})
    yield made, {node: {other: digest(near[other]) for other in near[node]} for node in near}
    for ledger in ledgers:
        ledger.close()


def test_pads_of_neighbours_cancel_over_all_and_over_nobody_else(devices):
    made, near = devices
    pads = [made[node].pad(1, 1, NODES, X, 3, near[node]) for node in NODES]
    assert not np.sum(pads, axis=0, dtype=np.uint64).any()
    for some in ([0], [3], [0, 1], [1, 2], [0, 1, 2], [0, 3]):
        assert np.sum([pads[i] for i in some], axis=0, dtype=np.uint64).all()


def test_a_pad_is_another_one_with_other_neighbours_at_either_end(devices):
    """So a device that was set back, and is shown other neighbours, uses no pad of before."""
    made, near = devices
    alone = made["n1"].pad(1, 1, NODES, X, 3, {"n0": near["n1"]["n0"]})
    other = made["n1"].pad(1, 1, NODES, X, 3, {"n0": digest(["n1", "n3"])})
    both = made["n1"].pad(1, 1, NODES, X, 3, near["n1"])
    last = made["n1"].pad(1, 1, NODES, X, 3, {"n2": near["n1"]["n2"]})
    assert (alone != other).all()
    assert (both != alone + last).all()
    assert (both == made["n1"].pad(1, 1, NODES, X, 3, near["n1"])).all()


def test_a_restart_picks_the_same_of_the_same_set_and_others_of_another_set_or_run(tmp_path):
    others = [f"n{i}" for i in range(60)]
    with closing(opened(tmp_path, "n0")) as ledger:
        picks = device(ledger).picks(others, 10)
        assert len({*picks}) == 10
        assert "n0" not in picks
        assert {*picks} <= {*others}
        assert device(ledger).picks(others[:59], 10) != picks
    with closing(opened(tmp_path, "n0")) as ledger:
        assert device(ledger).picks(others, 10) == picks
        ledger.join(b"s" * 16, b"plan")
        assert device(ledger, b"s" * 16).picks(others, 10) != picks


def test_the_picks_of_a_key_are_the_recorded_ones(monkeypatch):
    """Of other picks for the same set a coordinator would learn more than D draws tell."""
    masks = RunMasks.__new__(RunMasks)
    masks.node, masks.run = "n3", RUN
    monkeypatch.setattr(masks, "_own", lambda: run_masks._Own(bytes(range(32)), None))
    others = [f"n{i}" for i in range(12) if i != 3]
    assert masks.picks([*others, "n3"], 4) == masks.picks(others, 4) == ("n1", "n10", "n2", "n8")


def test_every_set_of_picks_is_as_likely_as_every_other_one(tmp_path):
    with closing(opened(tmp_path, "n0")) as ledger:
        masks, games = device(ledger), 3000
        counts = Counter(
            tuple(sorted(int(p[1:]) % 5 for p in masks.picks([f"n{5 * game + i}" for i in range(5)], 2)))
            for game in range(1, games + 1)
        )
    expected = games / comb(5, 2)
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    assert len(counts) == 10
    assert chi2 < 66  # nine degrees of freedom: with a chance below 1e-10


def test_what_graphs_add_to_delta_is_booked_once_a_run_with_its_key(tmp_path):
    with closing(opened(tmp_path, "n0")) as ledger:
        assert ledger.runs.exposed == 0.0
        assert not ledger.runs.has_key(RUN)
        for _ in range(2):
            device(ledger, exposed=1e-9).introduction()
        assert ledger.runs.has_key(RUN)
        ledger.join(b"s" * 16, b"plan")
        device(ledger, b"s" * 16, exposed=2e-9).introduction()
    with closing(opened(tmp_path, "n0", b"s" * 16)) as ledger:
        assert 3e-9 <= ledger.runs.exposed <= 3e-9 * (1 + 1e-12)
