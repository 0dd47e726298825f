"""The coordinator's own absence is nobody's silence, and a run that silence has ended is gone on with. Virtual seconds.

Real members, ledgers and gates in this process; the broker, or the coordinator's process, is away for ten minutes in
the middle of a run of each pattern. Who is back dials again within the longest wait of a link, each at another moment.
"""

from __future__ import annotations

import re

import pytest

from hushgrid.broker.coordinator.run_history import failed
from hushgrid.broker.simulation.memory import TICK_S, MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import Stopped, Suspended
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.runtime.endpoint import REJOIN_S, STEP_S, Clock
from hushgrid.node.transport.attempts import LAST_DELAY_S
from hushgrid.node.wire import COORDINATOR, Publication
from tests.support.devices.zone_fleet import World
from tests.support.devices.zone_fleet import setup as zones
from tests.support.runs.walk_in_memory import Walk, assert_conserved, assert_one_token, setup
from tests.support.scenarios.neighbour_scenarios import scenario

SILENT_S, WAIT_S, LONG_S = 10.0, 60.0, 600.0
KEEPALIVE_S = 45.0  #: after which a broker takes a client for dead
BACK_S = 10.0


class Away(MemoryBroker):
    """A broker that can be away, and endpoints that can: stopped (they keep their connection for a while), or gone."""

    def __init__(self, *args):
        super().__init__(*args)
        self.down, self.absent, self.stopped, self.waiting = False, {}, {}, []

    def hears(self, name):
        return not self.down and name not in self.absent

    def tick(self):
        self.now += TICK_S / 4
        assert self.now < 4 * LONG_S, "the run neither ends nor goes on"
        for name, at in list(self.absent.items()):
            if not self.down and self.now >= at and name not in self.stopped:
                del self.absent[name]
                self._connect(name)
        for e in list(self.endpoints.values()):
            if e.name not in self.stopped:
                self.publish(e.on_tick(e.clock.time_at(self.now, self.hears(e.name))))
                e.idle()

    def publish(self, publications):
        super().publish([p for p in publications if self.hears(p.topic.split("/")[4])])

    def _deliver(self, delivery):
        if delivery.dst in self.stopped and delivery.dst not in self.absent:
            self.waiting.append(delivery)
        elif self.hears(delivery.dst):
            super()._deliver(delivery)

    def leave(self):
        """The broker is gone, with all it had."""
        self.down = True
        self.queue.clear()
        self.retained.clear()
        names = sorted(self.endpoints)
        self.absent = dict.fromkeys(names, 0.0)

    def come(self):
        """It is back; the last of its clients dials again as late as a link may."""
        self.down = False
        names = sorted(self.endpoints)
        self.absent = {n: self.now + LAST_DELAY_S * k / (len(names) - 1) for k, n in enumerate(names)}

    def stop(self, name):
        self.stopped[name] = self.now

    def drop(self, name):
        """The broker takes it for dead."""
        self.absent[name] = 0.0
        self.waiting.clear()
        topic, payload = self.endpoints[name].will
        super().publish([Publication(topic, payload, True)])

    def go_on(self, name):
        del self.stopped[name]
        self.queue += self.waiting
        self.waiting = []


PATTERNS = {
    "star": (World, lambda: zones(rounds=20)),
    "token": (Walk, lambda: setup({"algorithm.rounds": 60}, seed=11)),
    "neighbours": (World, lambda: prepare(scenario_from(scenario("dpp2", 20, seed=7)))),
}


OPTIONS = {"broker": Away, "silent_s": SILENT_S, "wait_s": WAIT_S, "resumes": True}


def world_of(pattern, directory):
    kind, made = PATTERNS[pattern]
    return kind(directory, made(), **OPTIONS)


@pytest.fixture(params=PATTERNS)
def fleet(request, tmp_path):
    """fleet(name): a new fleet of this pattern."""
    return lambda name: world_of(request.param, tmp_path / name)


def steps(world):
    """How often the nodes have committed anything of the run."""
    done = 0
    for name in world.setup.plan.nodes:
        driver = world[name].driver
        if driver is not None:
            s = driver.machine.state
            done += s.t
    return done


class Middle:
    """Something happens in the middle of a run, and something else a while later; then how long nothing moves."""

    def __init__(self, happens, ends, seconds, after=9):
        self.happens, self.ends, self.seconds, self.after = happens, ends, seconds, after
        self.began = self.over = self.moved = None
        self.stood = 0

    def __call__(self, world):
        hub = world.hub
        if self.began is None and steps(world) >= self.after:
            self.began = hub.now
            self.happens(hub)
        elif self.began is not None and self.over is None and hub.now >= self.began + self.seconds:
            self.over, self.stood = hub.now, steps(world)
            self.ends(hub)
        elif self.over is not None and self.moved is None and steps(world) > self.stood:
            self.moved = hub.now


@pytest.fixture
def quiet(fleet):
    """What an undisturbed fleet of this pattern computes and spends."""
    world = fleet("quiet")
    world.run()
    world.close()
    return world.final


@pytest.mark.runs
@pytest.mark.parametrize("seconds", [15.0, LONG_S])
def test_a_run_outlives_its_broker_and_is_gone_on_with_in_ten_seconds(fleet, quiet, seconds):
    world = fleet("cut")
    middle = Middle(Away.leave, Away.come, seconds)
    world.run(middle)
    assert world.centre.error is None
    assert middle.moved - middle.over <= BACK_S
    world.close()
    assert world.final == quiet


@pytest.mark.runs
@pytest.mark.parametrize("seconds", [15.0, LONG_S])
def test_a_coordinator_that_was_stopped_blames_nobody(fleet, quiet, seconds):
    world = fleet("stopped")

    def stop(hub):
        hub.stop(COORDINATOR)

    def go_on(hub):
        if seconds > KEEPALIVE_S:
            hub.drop(COORDINATOR)
        hub.go_on(COORDINATOR)

    middle = Middle(stop, go_on, seconds)
    world.run(middle)
    assert world.centre.error is None
    world.close()
    assert world.final == quiet


def suspend(world, victim):
    """A member is stopped until the coordinator has ended the run for it."""
    middle = Middle(lambda hub: hub.stop(victim), lambda hub: None, LONG_S)
    world.run(middle)
    assert isinstance(world.centre.error, Suspended)
    assert victim in str(world.centre.error)


def again(world):
    """The next run of the same plan, by a coordinator started anew."""
    world.hub.endpoints[COORDINATOR] = world.build(COORDINATOR)
    world.hub._connect(COORDINATOR)
    return world.centre


SILENT = {"star": "z2", "neighbours": "n1"}


@pytest.fixture(params=SILENT)
def suspended(request, tmp_path):
    """A fleet whose run one member's silence has ended, the member's name, and what the run undisturbed would give."""
    undisturbed = world_of(request.param, tmp_path / "quiet")
    undisturbed.run()
    undisturbed.close()
    world = world_of(request.param, tmp_path / "suspended")
    suspend(world, SILENT[request.param])
    return world, SILENT[request.param], undisturbed.final


@pytest.mark.runs
def test_a_run_that_silence_has_ended_is_gone_on_with_and_nothing_is_paid_twice(suspended):
    world, victim, quiet = suspended
    first = world.centre.run
    world.hub.go_on(victim)
    centre = again(world)
    world.run()
    assert centre.error is None
    assert centre.run == first
    assert any(
        re.fullmatch(rf"resumes run {first.hex()[:8]} at round \d+: what was paid for is kept", line)
        for line in world.logs[COORDINATOR]
    )
    world.close()
    assert world.final == quiet


@pytest.mark.runs
def test_it_is_gone_on_with_after_restarts_of_every_process_too(suspended):
    world, _, quiet = suspended
    first = world.centre.run
    for name in world.setup.plan.nodes:
        world.hub.endpoints[name] = world.build(name)
        world.hub._connect(name)
    world.hub.stopped.clear()
    again(world)
    world.run()
    assert (world.centre.error, world.centre.run) == (None, first)
    world.close()
    assert world.final == quiet


def test_a_walk_that_nobody_could_make_any_more_is_gone_on_with_too(tmp_path):
    path = {"network": {"kind": "path", "nodes": 3}, "algorithm.rounds": 60}
    world = Walk(tmp_path, setup(path, seed=11), **OPTIONS)
    suspend(world, "n1")
    first = world.centre.run
    world.hub.go_on("n1")
    again(world)
    world.run()
    assert (world.centre.error, world.centre.run) == (None, first)
    assert any(line.startswith(f"resumes run {first.hex()[:8]} at activation ") for line in world.logs[COORDINATOR])
    assert assert_one_token(world.states()).t == 60
    assert_conserved(world.collect(), world.setup.plan.algorithm, world.states())
    world.close()


@pytest.mark.runs
def test_while_its_member_stays_away_the_run_is_kept(suspended):
    world, victim, quiet = suspended
    first = world.centre.run
    world.hub.drop(victim)
    world.hub.retained.clear()  # nobody has seen it since
    again(world)
    world.run()
    assert isinstance(world.centre.error, Stopped)
    assert f"{victim} not there after {WAIT_S:g} s" in str(world.centre.error)
    world.hub.go_on(victim)
    again(world)
    world.run()
    assert (world.centre.error, world.centre.run) == (None, first)
    world.close()
    assert world.final == quiet


@pytest.mark.runs
@pytest.mark.parametrize("how", ["it has forgotten it", "it refuses"])
def test_where_a_member_does_not_come_along_a_new_run_begins_and_that_is_said(suspended, how):
    world, victim, _ = suspended
    first = world.centre.run
    world.hub.go_on(victim)
    if how == "it has forgotten it":
        world.ledgers[victim].tables.db.execute("DELETE FROM run")
        says = f"{victim} does not know it any more"
    else:
        world.ledgers[victim].commit(first, status="refused", last=_refusal(first))
        says = f"{victim} refuses: no more"
    world.hub.endpoints[victim] = world.build(victim)
    world.hub._connect(victim)
    world.hub.waiting.clear()
    again(world)
    world.run()
    assert world.centre.error is None
    assert world.centre.run != first
    told = [line for line in world.logs[COORDINATOR] if line.startswith(f"run {first.hex()[:8]} is given up")]
    assert len(told) == 1
    assert says in told[0]
    again(world)
    assert world.centre._stopped is None  # nor is it ever asked for again
    world.close()


def _refusal(run):
    return wire.encode(wire.Envelope(run, 0, 0, None, wire.Refuse("no more")))


def test_a_run_that_was_refused_is_never_gone_on_with(tmp_path):
    world = World(tmp_path, zones(rounds=20), **OPTIONS)
    world.run(Middle(lambda hub: _refuse_now(world), lambda hub: None, 1.0))
    assert world.centre.error.kind == "failed"
    # A coordinator's daemon does not begin this plan again unasked: it would cost again.
    assert failed(world.ledgers[COORDINATOR], world.centre.announcement.blob) == str(world.centre.error)
    assert failed(world.ledgers[COORDINATOR], b"another plan") is None
    first = world.centre.run
    again(world)
    world.run()
    assert (world.centre.error, world.centre.run == first) == (None, False)
    world.close()


def _refuse_now(world):
    """z2's step fails."""
    z2 = world["z2"]

    def fails(*_):
        raise Stopped("z2: no answer")

    z2.driver.machine.receive = fails


# --- the clock ---


def test_an_endpoints_clock_stands_while_the_broker_is_away_and_loses_little_to_a_stopped_process():
    clock = Clock()
    assert clock.time_at(100.0, True) == 0.0
    assert clock.time_at(100.25, True) == 0.25
    assert clock.time_at(100.5, False) == 0.25
    assert clock.time_at(700.0, False) == 0.25
    assert clock.time_at(700.25, True) == 0.5
    assert clock.time_at(1300.25, True) == 0.5 + STEP_S


def test_time_for_which_an_endpoint_was_meant_to_sleep_counts_and_what_is_beyond_it_does_not():
    clock = Clock()
    clock.time_at(100.0, True)
    clock.sleeps_until = 130.0
    assert clock.time_at(130.5, True) == 30.0
    clock.sleeps_until = 160.5
    assert clock.time_at(3000.0, True) == 60.0  # the machine slept meanwhile
    clock.sleeps_until = 3030.0
    assert clock.time_at(3029.0, False) == 60.0
    assert clock.time_at(3029.5, True) == 60.5


def test_a_peer_is_given_as_long_to_be_back_as_its_link_may_wait():
    assert REJOIN_S >= LAST_DELAY_S
