"""The driver: commit first, publish after, in one transaction; after a crash everything goes on from what is stored."""

import functools
import os
from typing import get_args

import numpy as np
import pytest

from hushgrid.kernels.algorithms.ladmm import Agent
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node import wire
from hushgrid.node.config.scenario import Faults
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.runtime.driver import FAILED, Driver, StepFailed, Stored, stored_as
from hushgrid.node.wire import COORDINATOR, Envelope
from tests.support.agents.quadratic_star import Box, params, server
from tests.support.devices.gated_device import WORDS, Device, budget, plan
from tests.support.devices.zone_fleet import World, setup

SHARED = np.array([0, 2])
#: Under these names messages stand in the states of ledgers, whatever their classes are called.
STORED_NAMES = {
    *("W", "Z", "V", "Minimum", "Close", "Closing", "Released", "Taken"),
    *("Point", "Summed", "CloseAll", "Gathered", "ReleasedAll"),
    *("Meet", "Introduction", "Introduced", "Met", "Ask", "Masked", "Told", "Kept", "Draw", "Picks", "Edges"),
    *("Token", "Ack", "Answer", "Held", "Notice", "Iterate", "Begin", "Reached", "Lack"),
}


def test_ledgers_know_messages_by_names_that_never_change():
    assert {stored_as(message) for message in get_args(wire.Iterate | wire.Custody)} == STORED_NAMES


class Failing(Box):
    """A projection that fails in chosen calls, as a solver may."""

    def __init__(self, *fails):
        super().__init__(10.0)
        self.fails, self.calls = fails, 0

    def project(self, v, D):
        self.calls += 1
        if self.calls in self.fails:
            raise Stopped("the projection ended InsufficientProgress, expected Solved")
        return super().project(v, D)


def driver_of(device, wanted, feasible=None, gate=None):
    """An agent's driver on a real ledger; `gate` None: as after a restart."""
    gate = gate or device.gate(wanted)
    machine = Agent(wanted.algorithm, gate, feasible or Box(10.0), SHARED, np.zeros(4), 10.0)
    return Driver("n0", device.run, machine, gate, device.ledger)


def w(run, t, value=0.5, epoch=0):
    return Envelope(run, epoch, t, None, W(np.full(2, value)))


def take(driver, t, **over):
    return driver.receive(COORDINATOR, w(driver.run, t, **over), 100)


def memory(driver):
    return (
        wire.encode(driver.machine.state),
        wire.encode(driver.gate.state),
        dict(driver.seen),
        driver.sent,
        driver.taken,
    )


def test_spends_state_and_answer_are_committed_before_the_message_is_handed_out(tmp_path):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    driver = driver_of(device, wanted, gate=device.start(wanted))
    seen = []
    driver.observe = lambda d: seen.append(
        (len(device.ledger.spends.rows()), d.ledger.runs.find(d.run).state is not None)
    )
    ((dst, payload),) = take(driver, 1)
    assert seen == [(1, True)]
    sent = wire.decode_envelope(payload, 1000)
    assert (dst, sent.seq) == (COORDINATOR, 1)
    assert sent.mark == device.ledger.mark  # the mark tells the spend of this very message
    stored = wire.decode_state(Stored, device.ledger.runs.find(device.run).state)
    assert stored.machine == wire.encode(driver.machine.state)
    assert stored.gate == wire.encode(driver.gate.state)


def dying(*_):
    raise OSError(5, "Input/output error")


def test_when_the_ledger_cannot_be_written_nothing_is_handed_out(tmp_path):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    driver = driver_of(device, wanted, gate=device.start(wanted))
    ((_, first),) = take(driver, 1)
    with pytest.MonkeyPatch.context() as held:
        held.setattr(os, "pwrite", dying)
        with pytest.raises(LedgerFailed):
            take(driver, 2)
    assert len(device.ledger.spends.rows()) == 1
    again = driver_of(device, wanted)  # the process ends, and starts again from its ledger
    assert again.tick() == [(COORDINATOR, first)]
    assert len(take(again, 2)) == 1
    assert [row[2] for row in device.ledger.spends.rows()] == [1, 2]


@pytest.mark.parametrize("mode", ["objective", "input"])
def test_an_answer_drawn_for_a_step_that_fails_is_paid(tmp_path, mode):
    """The gate had answered; the projection failed: nothing of it leaves, and the ledger has what was drawn."""
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=3, local_updates=2, epsilon=2.0, mode=mode)
    driver = driver_of(device, wanted, Failing(2), device.start(wanted))
    with pytest.raises(StepFailed):
        take(driver, 1)
    assert [row[2] for row in device.ledger.spends.rows()] == ([1, 2] if mode == "objective" else [1])
    stored = device.ledger.runs.find(device.run)
    assert (stored.status, stored.state) == ("refused", None)
    if mode == "input":  # what was drawn is repeated, never drawn anew for another try
        assert device.start(wanted).knows()


def test_however_a_step_fails_the_network_hears_one_sentence_and_the_log_the_rest(tmp_path):
    """A solver that gives up, one that panics, numbers beyond all bounds: told apart by nobody outside."""

    class Panic(BaseException):
        pass

    class Broken(Box):
        def __init__(self, error):
            super().__init__(10.0)
            self.error = error

        def project(self, v, D):
            if isinstance(self.error, float):
                return np.full_like(v, self.error)
            raise self.error

    said, logged = set(), set()
    failures = [Stopped("a solver"), InputError("a grid"), ZeroDivisionError("a number"), Panic(), np.inf, np.nan, 1e13]
    for k, error in enumerate(failures):
        (tmp_path / str(k)).mkdir()
        device, wanted = Device(tmp_path / str(k), budget(2.0)), plan()
        driver = driver_of(device, wanted, Broken(error), device.start(wanted))
        with pytest.raises(StepFailed) as failed:
            take(driver, 1)
        assert len(device.ledger.spends.rows()) == 1
        body = wire.decode_envelope(failed.value.payload, 1000).body
        assert failed.value.payload == device.ledger.runs.find(device.run).last
        said.add((body.reason, body.kind))
        logged.add(failed.value.detail)
    assert said == {(f"n0: {FAILED}", "failed")}
    assert len(logged) == 5


def test_a_step_refused_half_way_pays_what_it_drew_and_says_why(tmp_path):
    """Two local updates, budget for one: neither is released, the one drawn is paid. Its reason is public numbers."""
    device, wanted = Device(tmp_path, simulated=True), plan(rounds=2, local_updates=2, per_answer={"epsilon": 0.5})
    device.start(wanted)
    device.cap = budget(1.6)
    driver = driver_of(device, wanted)
    take(driver, 1)
    with pytest.raises(StepFailed, match=r"n0: spent epsilon \S+, asked 0.5 more, budget 1.6") as failed:
        take(driver, 2)
    assert failed.value.refuse.kind == "refused"
    assert len(device.ledger.spends.rows()) == 3
    assert device.ledger.spends.totals(WORDS).epsilon <= 1.6


def test_a_repetition_is_answered_from_the_state_and_spends_nothing(tmp_path):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    driver = driver_of(device, wanted, gate=device.start(wanted))
    first = take(driver, 1)
    before = memory(driver)
    assert take(driver, 1) == first == driver.tick()
    assert memory(driver) == before
    assert len(device.ledger.spends.rows()) == 1


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_restarted_driver_sends_the_same_bytes_and_goes_on(tmp_path, rounds):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4, mode="input")
    driver = driver_of(device, wanted, gate=device.start(wanted))
    for t in range(1, rounds + 1):
        last = take(driver, t)
    device.ledger.close()
    again = Device(tmp_path, budget(2.0))
    again.run = device.run
    restored = driver_of(again, wanted)
    assert memory(restored) == memory(driver)
    assert restored.start() == restored.tick() == take(restored, rounds) == last
    with pytest.raises(Malformed, match="second body"):
        take(restored, rounds, value=0.7)  # it remembers which body it took
    assert len(take(restored, rounds + 1)) == 1
    assert len(again.ledger.spends.rows()) == 1  # mode input: the one answer, kept


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"epoch": 1}, "foreign epoch: 1, expected 0"),
        ({"value": 0.7}, "second body: another one for number 1"),
        ({"body": W(np.zeros(3))}, "second body"),
        ({"seq": 2, "body": W(np.zeros(3))}, "not of this edge: W, expected w of 2 entries"),
        ({"seq": 2, "body": Z(np.zeros(2))}, "not of this edge: Z, expected w of 2 entries"),
        ({"seq": 2, "sender": "n1"}, "not of this edge: a message from n1, expected from coordinator"),
    ],
    ids=str,
)
def test_what_this_edge_may_not_carry_is_malformed_and_changes_nothing(tmp_path, message, why):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    driver = driver_of(device, wanted, gate=device.start(wanted))
    take(driver, 1)
    before, rows = memory(driver), device.ledger.spends.rows()
    body = message.get("body", W(np.full(2, message.get("value", 0.5))))
    bad = Envelope(driver.run, message.get("epoch", 0), message.get("seq", 1), None, body)
    with pytest.raises(Malformed, match=why):
        driver.receive(message.get("sender", COORDINATOR), bad, 100)
    assert memory(driver) == before
    assert device.ledger.spends.rows() == rows


def test_a_centre_that_only_listened_commits_nothing_and_counts_each_message_once(tmp_path):
    ledger = Ledger(tmp_path / "c.ledger", COORDINATOR)
    ledger.join(b"run", b"plan")
    driver = Driver(COORDINATOR, b"run", server(params(rounds=2)), None, ledger)
    driver.round_of = lambda s: (s.t - 1, s.residual) if s.t > 1 else None
    assert [dst for dst, _ in driver.start()] == ["n0", "n1", "n2"]
    stored = ledger.runs.find(b"run").state
    for name in ("n2", "n0"):
        body = Envelope(b"run", 0, 1, None, Z(np.zeros(2)))
        assert driver.receive(name, body, 50) == []
        driver.receive(name, body, 50)
    assert ledger.runs.find(b"run").state == stored
    assert (driver.sent[0], driver.taken) == (3, (2, 100))
    assert len(driver.receive("n1", Envelope(b"run", 0, 1, None, Z(np.ones(2))), 50)) == 3
    ((t, residual, messages, volume),) = ledger.runs.history(b"run")
    assert (t, messages) == (1, 6)
    assert residual == pytest.approx(np.sqrt(2.0))
    assert volume > 150
    ledger.close()


# --- the whole fleet: crashes in place of messages ---


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The final numbers after so many rounds, of a run nothing disturbs."""

    @functools.cache
    def final(rounds):
        world = World(tmp_path_factory.mktemp("undisturbed"), setup(rounds))
        world.run()
        world.close()
        return world.final

    return final


@pytest.mark.runs
@pytest.mark.parametrize("name", ["z1", "z2", COORDINATOR])
def test_a_crash_before_any_single_delivery_changes_no_bit_and_costs_nothing(tmp_path, undisturbed, name):
    at, ended = 0, False
    while not ended:  # every delivery of the run in turn, until the run has fewer of them
        directory = tmp_path / str(at)
        directory.mkdir()
        world, count = World(directory, setup(2)), 0

        def crash(world, at=at):
            nonlocal count
            if count == at:
                topic, payload = world[name].will
                world.hub.endpoints[name] = world.build(name)
                world.hub.publish([wire.Publication(topic, payload, True)])
                world.hub._connect(name)
            count += 1

        world.run(crash)
        assert world.centre.error is None
        world.close()
        assert world.final == undisturbed(2)
        ended, at = count <= at, at + 1
    assert at > 10


@pytest.mark.runs
@pytest.mark.parametrize("seed", range(6))
def test_loss_duplication_reordering_and_crashes_change_no_bit_and_cost_nothing(tmp_path, undisturbed, seed):
    world = World(tmp_path, setup())
    world.hub.faults = Faults(loss=0.2, duplicate=0.2, reorder=0.3, crash=0.05, seed=seed)
    world.hub.random = np.random.Generator(np.random.Philox(key=seed))
    world.run()
    world.close()
    assert world.final == undisturbed(4)


def test_a_coordinator_that_crashed_after_stopping_still_tells_why(tmp_path):
    world, stopped = World(tmp_path, setup()), []

    def stop_and_crash(world):
        if not stopped and world.centre.phase == "running" and world.centre.driver.machine.state.t == 2:
            world.centre.stop("interrupted")  # committed; never published
            world.hub.endpoints[COORDINATOR] = world.build(COORDINATOR)
            world.hub._connect(COORDINATOR)
            stopped.append(world.centre.phase)

    world.run(stop_and_crash)
    assert stopped == ["finishing"]
    assert str(world.centre.error) == "interrupted"
    assert {n: world.ledgers[n].runs.last().status for n in world.ledgers} == dict.fromkeys(world.ledgers, "stopped")
    world.close()


class Replaced:
    """An owner's data that were replaced: the device of now. A run that is gone on with asks for nothing newer."""

    age = None

    def __init__(self, device):
        self.device = device

    def __call__(self, every, affordable):
        raise AssertionError("a run that is gone on with begins nothing")


def test_a_stopped_run_is_gone_on_with_from_the_data_of_now_under_their_version(tmp_path):
    """Else answers about the old data would count as about the new, of which nothing is known yet."""
    world = World(tmp_path, setup(), seed=None)

    def stop(world):
        if world.centre.phase == "running" and world.centre.driver.machine.state.t == 2:
            world.centre.stop("interrupted")

    world.run(stop)
    member, ledger = world["z1"], world.ledgers["z1"]
    stored = ledger.runs.last()
    assert stored.status == "stopped"
    ledger.new_data()
    member.renew = Replaced(member.device.holding(2 * member.device.d))
    member._join(stored.id, stored.plan, stored)
    gate = member.driver.gate
    assert np.array_equal(gate.loss.data, 2 * world.setup.device("z1").d)
    before = ledger.spends.no
    gate.gradient(member.driver.machine.state.z)
    ledger.commit(stored.id, spends=gate.spends, version=gate.version)
    assert [spend.version for spend in ledger.spends.rows(after=before)] == [2]
    world.close()
