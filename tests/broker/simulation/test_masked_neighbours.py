"""Masked runs among few neighbours end to end in one process: what is said, claimed, paid, heard and refused."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.masked import Edges
from hushgrid.kernels.privacy.mask_graphs import MaskGraph, fewest_shares
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.masked import decodable
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.audit.audit import audited
from tests.support.runs.masked_runs import assert_faults_change_nothing, masked, summed

FEW = {"masked": {"corrupt": 1, "neighbours": 4, "exposed": 1e-3}}
TRANSCRIPT = {"run": {"record": "transcript"}}


def test_the_sum_is_that_of_all_with_all_up_to_its_noise(tmp_path):
    few, all_ = (
        run(summed(tmp_path, "gram", nodes=10, privacy=p | {"epsilon": 1e8})).solution["x"]
        for p in (FEW, {"masked": {"corrupt": 1}})
    )
    assert np.abs(few - all_).max() < 1e-3


def test_the_claim_names_the_neighbours_and_what_they_add_to_delta(tmp_path):
    p = run(summed(tmp_path, nodes=10, privacy=FEW)).summary["privacy"]
    shares = fewest_shares(MaskGraph(10, 10, 1, 4), 1e-3)
    assert 1 < shares < 9
    assert p["masked"] | {"alone": None} == {
        "corrupt": 1, "contributors": 10, "honest": shares, "alone": None, "neighbours": 4, "exposed": 1e-3
    }  # fmt: skip
    assert p["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-9)


def test_with_all_as_neighbours_it_is_a_run_of_all_with_all(tmp_path):
    every = {"masked": {"corrupt": 1, "neighbours": 9}}
    few, all_ = (run(summed(tmp_path, nodes=10, privacy=p)) for p in (every, {"masked": {"corrupt": 1}}))
    assert np.array_equal(few.solution["x"], all_.solution["x"])
    assert few.summary["privacy"]["masked"]["honest"] == 9


@pytest.mark.runs
def test_faults_and_restarts_change_no_bit_and_use_no_pad_twice(tmp_path):
    assert_faults_change_nothing(summed(tmp_path, nodes=6, privacy=FEW, **TRANSCRIPT), seeds=3)


@pytest.mark.runs
def test_an_eavesdropper_decodes_the_sums_and_no_device_hears_of_more_than_its_neighbours(tmp_path):
    result = run(masked(tmp_path, nodes=10, privacy=FEW, **TRANSCRIPT), out=tmp_path / "run")
    found = attack(tmp_path / "run")
    assert (found["sums"], found["alone"]) == (6, [])
    heard = parse(result.transcript, "t")
    assert {len(one.among) for one in decodable(heard)} == {10}
    shown = {m.dst: len(m.body.introductions) for m in heard.messages if isinstance(m.body, Edges)}
    assert 10 * 5 <= sum(shown.values()) <= 10 * 9 < 10 * 10


@pytest.mark.runs
def test_games_at_the_gate_show_no_more_than_is_claimed(tmp_path):
    assert not audited(summed(tmp_path, nodes=8, privacy=FEW | {"epsilon": 4.0}), games=2000).above


@pytest.mark.parametrize(
    ("masked", "words"),
    [
        ({"neighbours": 10}, "privacy.masked.neighbours: found 10 of 10 contributors, expected fewer"),
        (
            {"neighbours": 1},
            r"privacy.masked.neighbours: found 1, expected at least \d .10 nodes, 1 corrupt, exposed 1e",
        ),
        ({"exposed": 1e-9}, "exposed beside neighbours alone"),
        (
            {"neighbours": 4, "exposed": 1e-3, "sites": {"number": 2}},
            "privacy.masked.neighbours: found 4, expected none beside sites",
        ),
    ],
)
def test_what_cannot_be_masked_so_is_refused_in_one_line(tmp_path, masked, words):
    with pytest.raises(InputError, match=words) as refused:
        run(summed(tmp_path, nodes=10, privacy={"masked": {"corrupt": 1} | masked}))
    assert "\n" not in str(refused.value)


@pytest.mark.runs
def test_more_than_500_devices_take_part_with_neighbours_and_not_without(tmp_path):
    from hushgrid.broker.simulation.setup import prepare
    from hushgrid.node.config.scenario import scenario_from

    def plan(**masked):
        return prepare(
            scenario_from(summed(tmp_path, nodes=501, m=2, privacy={"masked": {"corrupt": 50} | masked}))
        ).plan

    with pytest.raises(InputError, match="found 501 nodes that mask all with all, expected at most 500, neigh"):
        plan()
    assert plan(neighbours=12).terms.masked.honest >= 0.95 * 451
