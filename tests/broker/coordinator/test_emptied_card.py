"""kill -9 and an empty card at every step of a run, of every pattern: refused until the owner accepts, nothing
forgotten.
"""

from __future__ import annotations

import pytest

from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import Refused, Stopped
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.peer_marks import covers
from hushgrid.node.privacy.marks import highest
from hushgrid.node.runtime.witness import Witness
from hushgrid.node.wire import COORDINATOR, Envelope, Join, Publication, encode
from tests.support import examples
from tests.support.devices.zone_fleet import World, setup
from tests.support.runs.masked_runs import masked
from tests.support.scenarios import neighbour_scenarios, record_scenarios

# --- A fleet in this process, of any pattern, one of whose devices is killed at a chosen step and comes back with a ---

SILENT_S, WAIT_S = 3.0, 20.0  # virtual seconds
#: The card is empty before the message is read; once its step is committed, of which nothing was published; after that;
#: and after that, with the coordinator killed and started again first.
MOMENTS = ("before", "committed", "published", "restarted")


def zones(place):
    return setup(rounds=3)


def star(place, **more):
    keys = {"network": None, "problem.data.nodes": 3, "algorithm": {"name": "ladmm", "rounds": 3, "rho": 0.5}}
    return prepare(scenario_from(record_scenarios.scenario(keys, **more)))


def masked_sums(place):
    return prepare(scenario_from(masked(place, nodes=3, m=10, algorithm={"rounds": 3})))


def token(place):
    return prepare(scenario_from(record_scenarios.scenario({"algorithm.rounds": 14, "algorithm.walk": "hamiltonian"})))


def neighbours(place):
    return prepare(scenario_from(neighbour_scenarios.scenario("dpp2", rounds=4)))


PATTERNS = {"zones": zones, "star": star, "masked": masked_sums, "token": token, "neighbours": neighbours}


class Card(MemoryBroker):
    """Message `step` to the victim is the one at which its card is emptied; 0: none is."""

    victim, step, moment, count = "", 0, "", 0
    empties = staticmethod(lambda: None)

    def __init__(self, *args):
        self.told = {}  #: by the victim to anybody, the highest mark of each of its ledgers
        super().__init__(*args)

    def publish(self, publications):
        for topic, payload, _ in publications:
            kind, src = topic.split("/")[3:5]
            if src == self.victim and kind in ("edge", "all") and (m := wire.decode_envelope(payload, 1 << 20).mark):
                self.told[m.ledger] = highest(self.told.get(m.ledger), m)
        super().publish(publications)

    def _deliver(self, delivery):
        if delivery.dst != self.victim or "/state/" in delivery.topic:
            return super()._deliver(delivery)
        self.count += 1
        if self.count != self.step:
            return super()._deliver(delivery)
        if self.moment == "committed":
            self.endpoints[self.victim].on_message(delivery.topic, delivery.payload)
        elif self.moment != "before":
            super()._deliver(delivery)
        self.empties()


class Fleet(World):
    """`victim` is the device whose card is emptied."""

    def __init__(self, directory, setup, victim):
        super().__init__(directory, setup, broker=Card, silent_s=SILENT_S, wait_s=WAIT_S)
        self.victim = self.hub.victim = victim
        self.hub.empties = self.emptied

    def emptied(self):
        """kill -9, and a new card: no ledger, no mark."""
        if self.hub.moment == "restarted":
            while self.hub.queue:  # what is on its way to others arrives
                super(Card, self.hub)._deliver(self.hub._next())
            self.ledgers[COORDINATOR]._give_up()
            self.restarted(COORDINATOR)
        self.forgets(self.victim)

    def forgets(self, name):
        self.ledgers.pop(name)._give_up()
        for file in self.directory.glob(f"{name}.ledger*"):
            file.unlink()
        self.restarted(name)

    def restarted(self, name):
        topic, payload = self.hub.endpoints[name].will
        self.hub.queue = [d for d in self.hub.queue if d.dst != name]
        self.hub.publish([Publication(topic, payload, True)])
        self.hub.endpoints[name] = self.build(name)
        self.hub._connect(name)

    def runs(self, coordinator=True):
        """One run; how it has ended: None or an error. `coordinator`: by a new process of it."""
        if coordinator:
            self.restarted(COORDINATOR)
        self.run()
        return self.centre.error

    def accepts(self):
        """Its owner does, while the device is stopped."""
        self.ledgers[self.victim].accept()
        self.restarted(self.victim)

    def forgotten(self):
        """Marks that the device has told somebody, and that its ledger of now does not count."""
        mark = self.ledgers[self.victim].mark
        return [told for told in self.hub.told.values() if told.ledger != mark.ledger and not covers(mark, [told])]


def steps(place, pattern, victim):
    """How many messages the victim is sent in a run that nobody disturbs."""
    fleet = Fleet(place, PATTERNS[pattern](place), victim)
    assert fleet.runs(coordinator=False) is None
    fleet.close()
    return fleet.hub.count


# --- the tests ---

VICTIMS = {"zones": "z1"}
CASES = [(pattern, moment) for pattern in PATTERNS for moment in MOMENTS]


def emptied_at(place, pattern, moment, step):
    """How often the device refused until it had counted all that it had told, in the runs after that step."""
    victim = VICTIMS.get(pattern, "n1")
    place.mkdir()
    fleet = Fleet(place, PATTERNS[pattern](place), victim)
    fleet.hub.step, fleet.hub.moment = step, moment
    fleet.runs(coordinator=False)
    fleet.hub.step, new = 0, fleet.ledgers[victim].id
    spent, refusals = any(mark.no for mark in fleet.hub.told.values() if mark.ledger != new), 0
    while isinstance(error := fleet.runs(), Refused):
        assert f"{victim}: its ledger is behind its mark of another ledger" in str(error)
        assert fleet.ledgers[victim].spends.answers() == fleet.ledgers[victim].spends.kinds("").get(
            "gap", 0
        )  # no answer was given
        fleet.accepts()
        refusals += 1
        assert refusals <= 2, "it is told all at once"
    assert error is None
    assert bool(refusals) == spent
    assert fleet.forgotten() == []
    assert fleet.runs() is None  # and so it goes on: nothing is told that it does not count
    fleet.close()
    return refusals


@pytest.mark.runs
@pytest.mark.parametrize(("pattern", "moment"), examples.few(CASES, [(p, "published") for p in PATTERNS]))
def test_an_empty_card_at_every_step_is_refused_until_its_owner_accepts_and_nothing_is_forgotten(
    tmp_path, pattern, moment
):
    victim = VICTIMS.get(pattern, "n1")
    (tmp_path / "first").mkdir()
    last = steps(tmp_path / "first", pattern, victim)
    found = [emptied_at(tmp_path / str(step), pattern, moment, step) for step in range(1, last + 1)]
    assert any(found)


@pytest.mark.parametrize("pattern", ["token", "neighbours"])
def test_if_the_coordinator_has_lost_its_memory_too_the_neighbours_remember(tmp_path, pattern):
    fleet = Fleet(tmp_path, PATTERNS[pattern](tmp_path), "n1")
    assert fleet.runs(coordinator=False) is None
    told = dict(fleet.hub.told)
    fleet.forgets("n1")
    fleet.forgets(COORDINATOR)
    assert "n1: its ledger is behind its mark of another ledger" in str(fleet.runs())
    fleet.accepts()
    assert fleet.runs() is None
    spent = max(mark.no for mark in told.values())
    (lost,) = told
    known = [fleet.ledgers[name].marks.peers.mark("n1", lost) for name in ("n0", "n2")]
    assert spent - 1 <= max(mark.no for mark in known if mark) <= spent  # a walk's last answer goes to nobody
    fleet.close()


def test_in_masked_runs_all_members_remember_what_a_signed_introduction_has_said(tmp_path):
    fleet = Fleet(tmp_path, PATTERNS["masked"](tmp_path), "n1")
    assert fleet.runs() is None
    first = fleet.ledgers["n1"].mark
    assert fleet.runs() is None  # its introductions say what the first run has cost
    assert {fleet.ledgers[name].marks.peers.mark("n1", first.ledger) for name in ("n0", "n2")} == {first}
    fleet.forgets("n1")
    fleet.forgets(COORDINATOR)
    assert "n1: its ledger is behind its mark of another ledger" in str(fleet.runs())
    fleet.close()


@pytest.mark.runs
def test_a_second_box_is_told_what_the_first_two_have_spent_and_pays_for_it_once(tmp_path):
    fleet = Fleet(tmp_path, PATTERNS["zones"](tmp_path), "z1")
    assert fleet.runs(coordinator=False) is None
    for boxes in (2, 3):
        fleet.forgets("z1")
        assert isinstance(fleet.runs(), Refused)
        fleet.accepts()
        assert fleet.runs() is None
        own = [mark.epsilon for mark in fleet.hub.told.values()]
        assert fleet.ledgers["z1"].mark.epsilon == pytest.approx(boxes * own[0])
    assert [len(ledger.marks.peers.marks("z1")) for ledger in (fleet.ledgers[COORDINATOR],)] == [1]
    fleet.close()


# --- a stopped run ---


def stopped(tmp_path, setup):
    """A run that stopped, because a box in it was replaced, and a coordinator that goes on with it."""
    fleet = Fleet(tmp_path, setup, "n1")
    fleet.hub.step, fleet.hub.moment = 3, "published"
    assert "n1 silent" in str(fleet.runs(coordinator=False))
    fleet.options["resumes"], fleet.hub.step = True, 0
    return fleet


def remembers_nothing(fleet):
    """Its coordinator, as one of the release before, which stored marks at the beginning and the end of a run alone."""
    with fleet.ledgers[COORDINATOR].tables.transaction():
        fleet.ledgers[COORDINATOR].tables.db.execute("DELETE FROM peer")
    return fleet


def test_a_stopped_run_that_a_box_without_state_joins_is_given_over_at_once_in_one_line(tmp_path):
    fleet = remembers_nothing(stopped(tmp_path, star(tmp_path)))
    began = fleet.hub.now
    assert fleet.runs() is None
    assert fleet.hub.now - began < SILENT_S
    (line,) = [line for line in fleet.logs[COORDINATOR] if "is given up" in line]
    assert "n1 has lost its state: it stands at the beginning of the run, expected message 2; a new run begins" in line
    fleet.close()


def test_a_stopped_run_with_another_ledger_in_it_is_given_over_before_anybody_is_asked(tmp_path):
    fleet = stopped(tmp_path, star(tmp_path))
    assert isinstance(fleet.runs(), Refused)  # the new run's: the box has not counted what the one before it has spent
    (line,) = [line for line in fleet.logs[COORDINATOR] if "is given up" in line]
    assert "n1 has lost its state: its ledger is another one; a new run begins" in line
    fleet.close()


def test_a_box_of_the_release_before_that_answers_every_question_with_a_join_is_not_heard(tmp_path, monkeypatch):
    fleet = remembers_nothing(stopped(tmp_path, star(tmp_path)))
    monkeypatch.setattr(
        Witness, "join", lambda self, run, warm, _: encode(Envelope(run, 0, 0, self.ledger.mark, Join(warm)))
    )
    began, error = fleet.hub.now, fleet.runs()
    assert type(error) is Stopped  # for good: it is silent at the same point again
    assert "n1 silent" in str(error)
    assert fleet.hub.now - began < 4 * SILENT_S
    fleet.close()
