"""An interval that sees only sums begins where the last one has ended, which is public: every member was told."""

import numpy as np
import pytest

from hushgrid.broker.coordinator import warm_start
from hushgrid.node import wire
from hushgrid.node.config.coordinator import Continuous
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again, RowFleet
from tests.support.runs.masked_runs import masked

FREE = {"epsilon": 1e9}  # the noise moves nothing that is compared here
MOMENTUM = {"rounds": 3, "momentum": 0.9}


def fleet(place, algorithm=None, contributors=None, **keys):
    privacy = FREE | {"masked": {"corrupt": 1} | ({"contributors": contributors} if contributors else {})}
    return RowFleet(place, masked(place / "rows", privacy=privacy, algorithm=algorithm), **keys)


@pytest.mark.runs
def test_it_begins_at_the_last_x_and_comes_nearer(tmp_path):
    made = fleet(tmp_path, {"rounds": 3})
    first = made.interval()
    assert not np.any(made.begun)
    ended = made.w.copy()
    second = made.interval()
    assert np.array_equal(made.begun, ended)
    assert (first["start"], second["start"]) == ("cold", "warm")
    assert np.array_equal(made.iterates["n0"], made.w)  # told to all
    whole = fleet(tmp_path / "whole", {"rounds": 6})
    whole.interval()
    assert np.abs(made.w - whole.w).max() < 1e-3  # six steps in a row, but for the noise
    assert np.abs(ended - whole.w).max() > 1e-2


@pytest.mark.runs
def test_its_velocity_does_not_carry_over(tmp_path):
    made = fleet(tmp_path, MOMENTUM)
    made.interval()
    assert np.any(made.centre.driver.machine.state.v)
    made.interval()
    assert not np.any(made.centre.machine().state.v)
    whole = fleet(tmp_path / "whole", MOMENTUM | {"rounds": 6})
    whole.interval()
    assert np.abs(made.w - whole.w).max() > 1e-2


@pytest.mark.runs
def test_without_warm_start_or_of_another_algorithm_it_begins_at_zero(tmp_path):
    made = fleet(tmp_path, {"rounds": 2}, run=Continuous(every="15min", warm_start=False))
    made.interval()
    assert made.interval()["start"] == "cold"
    assert not np.any(made.begun)
    made = fleet(tmp_path / "other", {"rounds": 2})
    made.interval()
    kept = wire.decode_state(warm_start.WarmState, made.ledgers[COORDINATOR].note(warm_start.KEY))
    made.ledgers[COORDINATOR].keep_note(warm_start.KEY, wire.encode(warm_start.WarmState("another", 1.0, kept.parts)))
    assert made.interval()["start"] == "cold"


def test_after_an_interval_without_a_member_all_begin_where_that_one_has_ended(tmp_path):
    made = fleet(tmp_path, {"rounds": 2}, contributors=3, quorum=3)
    made.interval()
    made.goes("n3")
    assert made.interval()["absent"] == ["n3"]
    ended = made.w.copy()
    made.comes("n3")
    row = made.interval()
    assert (row["start"], row["absent"]) == ("warm", [])
    assert np.array_equal(made.begun, ended)


@pytest.mark.runs
@pytest.mark.parametrize("who", [COORDINATOR, "n1"])
def test_a_warm_run_has_the_same_bits_whoever_starts_again_at_any_message(tmp_path, who):
    calm = fleet(tmp_path / "calm", MOMENTUM)
    calm.interval()
    before = calm.hub.delivered
    calm.interval()
    messages = calm.hub.delivered - before
    for at in range(1, messages, max(messages // 8, 1)):
        made = fleet(tmp_path / f"{at}", MOMENTUM)
        made.interval()
        assert made.interval(Again(at, who))["start"] == "warm"
        assert made.w.tobytes() == calm.w.tobytes(), at
