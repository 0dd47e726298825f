"""Where no broker is trusted, a standby believes what the coordinator's certificate has signed, of the run and of who
goes on, and nothing else.
"""

from types import SimpleNamespace

import pytest

from hushgrid.broker.standby.replica import Noted, Replica, Replicated, decode, notes_topic, topic
from hushgrid.broker.standby.takeover import Claim
from hushgrid.broker.standby.watcher import Watcher
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.masks.identity import lasting
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.runtime.endpoint import Clock
from hushgrid.node.trust.stated import Stated
from hushgrid.node.wire import COORDINATOR, Death, Instance, Plan, Progress, Topics

T = Topics("demo")
STATE, RUN, NOTES = T.state(COORDINATOR), topic("demo"), notes_topic("demo")
FIRST, LATER = Instance(b"a" * 16, 1, 100.0), Instance(b"c" * 16, 1, 900.0)


def word(seed=1):
    return Stated(SimpleNamespace(identity=lasting(COORDINATOR, bytes([seed]) * 32, 1), trust=None))


def replica(no):
    plan, state = (
        wire.encode(Plan(b"plan", b"nonce", {"z1": 1}, {})),
        wire.encode(Stored(b"", None, {}, (0, 0), (0, 0))),
    )
    return wire.encode(Replica(wire.run_id(b"plan", b"nonce", {"z1": 1}), plan, state, 100.0, no))


def progress(by):
    return wire.encode(Progress(b"r" * 16, 3, "running", by))


@pytest.fixture
def standby():
    return Watcher("demo", 30.0, lambda line: None, word())


def test_what_its_own_certificate_has_signed_counts(standby):
    first = word()
    standby.on_message(STATE, first.sign(STATE, progress(FIRST)))
    standby.on_message(RUN, first.sign(RUN, replica(1)))
    standby.on_message(NOTES, first.sign(NOTES, wire.encode(Noted({"schedule": b"1"}, 100.0, 2))))
    assert standby.dead_since is None
    assert standby.replica == decode(replica(1))
    assert standby.noted is not None
    standby.on_message(STATE, wire.encode(Death(1, FIRST)))  # a last will, which the broker has from the start
    assert standby.dead_since is not None


@pytest.mark.parametrize(
    "lie", [lambda place, said: said, word(2).sign, lambda place, said: word().sign(T.state("z1"), said)]
)
def test_what_is_not_signed_or_by_another_or_for_another_topic_does_not(standby, lie):
    for place, said in ((STATE, progress(FIRST)), (RUN, replica(1)), (NOTES, wire.encode(Noted({}, 100.0, 2)))):
        standby.on_message(place, lie(place, said))
    assert (standby.last, standby.replica, standby.noted) == (None, None, None)


def test_an_earlier_state_that_is_handed_over_again_takes_no_later_ones_place(standby):
    first = word()
    early, late = (first.sign(RUN, replica(no)) for no in (1, 2))
    for payload in (early, late, early):
        standby.on_message(RUN, payload)
    assert standby.replica == decode(replica(2))


def test_a_planted_later_coordinator_is_not_outbid_and_a_real_one_is():
    claim = Claim("demo", FIRST, lambda line: None, word())
    assert claim.on_message(STATE, progress(LATER)) == []
    (again,) = claim.on_message(STATE, word().sign(STATE, progress(LATER)))
    assert wire.decode_presence(word().open(STATE, again.payload)).by.replaces(LATER)


def test_the_run_goes_out_signed_and_nothing_else_is_signed_twice():
    stored = SimpleNamespace(id=b"r" * 16, plan=b"plan", state=b"state", status="running", last=None)
    ledger = SimpleNamespace(note=lambda key: b"1", runs=SimpleNamespace(find=lambda run: stored))
    coordinator = SimpleNamespace(ledger=ledger, instance=FIRST, log=print, clock=Clock(), subscriptions=())
    guarded = SimpleNamespace(connected=lambda: [(STATE, b"sealed", True)], clock=Clock())
    told = Replicated(coordinator, "demo", lambda: False, lambda: False, ("schedule",), guarded, word())
    told.observe(SimpleNamespace(run=b"r" * 16), True)
    notes, run, state = told.connected()
    assert (notes.topic, run.topic, state) == (NOTES, RUN, (STATE, b"sealed", True))
    for one in (notes, run):
        assert word().open(one.topic, one.payload)
        with pytest.raises(Malformed, match="not signed by this certificate"):
            word(2).open(one.topic, one.payload)
