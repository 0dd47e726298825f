"""An interval begins where the one before has ended, with real members, ledgers and solver in this process."""

import msgspec
import numpy as np
import pytest

from hushgrid.broker.coordinator import warm_start as coordinator_start
from hushgrid.kernels.algorithms.ladmm import AgentState
from hushgrid.node import wire
from hushgrid.node.runtime import warm_start
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again, Fleet, scenario


@pytest.mark.runs
def test_a_run_begins_at_the_last_state_and_is_nearer_from_its_first_round(tmp_path):
    fleet = Fleet(tmp_path, scenario("ladmm", rounds=20, privacy=5.0))
    first, second = fleet.interval(), fleet.interval()
    assert (first["start"], second["start"]) == ("cold", "warm")
    assert second["cold"] == []
    assert second["residual"] < first["residual"] / 2
    assert fleet.centre.ledger.history(fleet.centre.run)[0][1] < first["residual"]


def test_a_member_and_its_coordinator_keep_the_same_dual(tmp_path):
    fleet = Fleet(tmp_path, scenario("ladmm", rounds=3, privacy=5.0))
    for _ in range(3):
        fleet.interval()
        state = fleet.centre.driver.machine.state
        for z in fleet.zones:
            ended = msgspec.msgpack.decode(fleet.ledgers[z].note(warm_start.KEY), type=warm_start.Ended)
            own = wire.decode_state(AgentState, ended.machine)
            np.testing.assert_array_equal(own.lam, state.lam[z])


def test_a_member_that_has_lost_its_state_begins_cold_and_the_result_says_so(tmp_path):
    fleet = Fleet(tmp_path, scenario("ladmm", rounds=6, privacy=5.0))
    fleet.interval()
    fleet.ledgers["z2"].keep_note(warm_start.KEY, b"")
    row = fleet.interval()
    assert (row["start"], row["cold"]) == ("warm", ["z2"])
    # Both sides have begun z2's dual at zero.
    ended = msgspec.msgpack.decode(fleet.ledgers["z2"].note(warm_start.KEY), type=warm_start.Ended)
    own = wire.decode_state(AgentState, ended.machine)
    np.testing.assert_array_equal(own.lam, fleet.centre.driver.machine.state.lam["z2"])
    assert not own.warm
    assert fleet.interval()["cold"] == []


@pytest.mark.runs
@pytest.mark.parametrize("name", ["ladmm", "consensus-admm"])
@pytest.mark.parametrize("lost", ["gone", "cut short", "not finite", "of other zones"])
def test_a_coordinator_that_has_lost_the_state_begins_cold_and_says_why(tmp_path, name, lost):
    fleet = Fleet(tmp_path, scenario(name, rounds=4, privacy=5.0))
    fleet.interval()
    ledger = fleet.ledgers[COORDINATOR]
    kept = wire.decode_state(coordinator_start.WarmState, ledger.note(coordinator_start.KEY))
    part = kept.parts["z1"]
    broken = {
        "gone": None,
        "cut short": wire.encode(kept)[:-9],
        "not finite": wire.encode(
            msgspec.structs.replace(
                kept, parts=kept.parts | {"z1": msgspec.structs.replace(part, warm=part.warm * np.nan)}
            )
        ),
        "of other zones": wire.encode(msgspec.structs.replace(kept, of="another")),
    }[lost]
    if broken is None:
        ledger.db.execute("DELETE FROM meta WHERE key = ?", (f"note {coordinator_start.KEY}",))
    else:
        ledger.keep_note(coordinator_start.KEY, broken)
    row = fleet.interval()
    assert (row["outcome"], row["start"]) == ("answer", "cold")
    said = {
        "gone": "no run was done before",
        "cut short": "not whole",
        "not finite": "not finite",
        "of other zones": "of another case",
    }
    assert said[lost] in fleet.intervals.why_cold
    assert fleet.interval()["start"] == "warm"


@pytest.mark.runs
@pytest.mark.parametrize("name", ["ladmm", "consensus-admm"])
@pytest.mark.parametrize("who", [COORDINATOR, "z1"])
def test_a_warm_run_has_the_same_bits_whoever_starts_again_at_any_message(tmp_path, name, who):
    rounds = 4
    calm = Fleet(tmp_path / "calm", scenario(name, rounds=rounds, privacy=5.0))
    calm.interval()
    before = calm.hub.delivered
    calm.interval()
    expected, messages = calm.states(), calm.hub.delivered - before
    for at in range(1, messages, max(messages // 12, 1)):
        fleet = Fleet(tmp_path / f"{at}", scenario(name, rounds=rounds, privacy=5.0))
        fleet.interval()
        assert fleet.interval(Again(at, who))["start"] == "warm"
        assert fleet.states() == expected, at
