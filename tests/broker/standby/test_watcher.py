"""When a standby takes over: by what the coordinator says, and by a time that stands still while the broker is away.
The same words at the same times decide the same.
"""

import pytest

from hushgrid.broker.standby.takeover import Claim
from hushgrid.broker.standby.watcher import LATEST, Watcher
from hushgrid.node import status, wire
from hushgrid.node.wire import COORDINATOR, Death, Instance, Progress, Topics

T = Topics("demo")
FIRST, SECOND = Instance(b"a" * 16, 1, 100.0), Instance(b"b" * 16, 1, 200.0)
AFTER = 30.0
MOMENT = status.moment(0.0)


class Heard(Watcher):
    """A standby, and the broker's time."""

    def __init__(self):
        super().__init__("demo", AFTER, lambda line: None)
        self.now = 0.0
        self.clock.time_at(0.0, True)

    def pass_time(self, seconds, hears=True):
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.clock.time_at(self.now, hears)
            self.on_tick(self.now)

    def hear(self, presence):
        self.on_message(T.state(COORDINATOR), wire.encode(presence))

    def read(self, session, state, again_s=None, at=0.0):
        report = status.Status(
            node=COORDINATOR,
            version="0",
            wire=1,
            session=session,
            since=MOMENT,
            at=status.moment(at),
            state=state,
            again_s=again_s,
        )
        self.on_message(T.status(COORDINATOR), status.encode(report))


@pytest.fixture
def standby():
    return Heard()


def running(by=FIRST):
    return Progress(b"r" * 16, 3, "running", by)


def test_it_takes_over_so_long_after_the_death(standby):
    standby.hear(running())
    standby.pass_time(1000)
    assert not standby.takes_over
    standby.hear(Death(1, FIRST))
    standby.pass_time(AFTER - 1)
    assert not standby.takes_over
    standby.pass_time(1)
    assert standby.takes_over


def test_one_that_comes_back_in_time_keeps_its_place(standby):
    standby.hear(running())
    standby.hear(Death(1, FIRST))
    standby.pass_time(AFTER / 2)
    standby.hear(running(Instance(b"a" * 16, 2, 150.0)))
    standby.hear(Death(1, FIRST))  # the will of the session before comes late
    standby.pass_time(1000)
    assert not standby.takes_over


@pytest.mark.parametrize("state", ["running", "gathering", "over"])
def test_what_a_broker_retains_of_a_dead_coordinator_says_not_that_it_lives(standby, state):
    """A standby that starts, or connects again, after the death."""
    standby.hear(Death(1, FIRST))
    standby.read(1, state)
    standby.pass_time(AFTER)
    assert standby.takes_over


def test_a_status_of_a_later_session_says_that_it_lives(standby):
    standby.hear(Death(1, FIRST))
    standby.read(2, "gathering")
    standby.pass_time(1000)
    assert not standby.takes_over


def test_one_that_says_that_it_ends_is_dead(standby):
    standby.hear(running())
    standby.read(1, "off")
    standby.pass_time(AFTER)
    assert standby.takes_over


def test_a_broker_that_is_away_is_no_death(standby):
    standby.hear(running())
    standby.hear(Death(1, FIRST))
    standby.pass_time(1000, hears=False)
    assert not standby.takes_over


def test_the_death_of_an_earlier_coordinator_is_not_that_of_this_one(standby):
    standby.hear(running(SECOND))
    standby.hear(Death(1, FIRST))
    standby.pass_time(1000)
    assert not standby.takes_over


def test_where_nobody_was_ever_heard_of_it_takes_over_too(standby):
    standby.pass_time(AFTER)
    assert standby.takes_over
    assert standby.later(50.0) == 50.0


def test_it_begins_after_the_last_one_whatever_its_own_clock_says(standby):
    standby.hear(running())
    assert standby.later(3.0) == FIRST.began + 1.0
    assert standby.later(1e9) == 1e9


@pytest.mark.parametrize("began", [1e300, float("inf"), float("nan"), -1.0])
def test_a_planted_state_of_a_time_that_no_clock_has_says_nothing(standby, began):
    """Neither that a coordinator lives, nor when the next one must begin: it could not be later."""
    standby.hear(running(Instance(b"c" * 16, 1, began)))
    standby.pass_time(AFTER)
    assert standby.takes_over
    assert standby.later(7.0) == 7.0


def test_a_planted_newer_state_is_outbid():
    """It would end every coordinator that connects again, if the next one did not begin later still."""
    claim = Claim("demo", FIRST, lambda line: None)
    (first,) = claim.connected()
    assert wire.decode_presence(first.payload).by == FIRST
    planted = Instance(b"c" * 16, 1, LATEST / 2)
    (again,) = claim.on_message(T.state(COORDINATOR), wire.encode(running(planted)))
    assert wire.decode_presence(again.payload).by.replaces(planted)


@pytest.mark.parametrize("payload", [b"", b"x", b"\x80", b"{}"])
def test_what_does_not_decode_says_nothing(standby, payload):
    for name in standby.subscriptions:
        standby.on_message(name, payload)
    standby.on_message("elsewhere", payload)
    assert standby.last is None


def test_silence_is_death_once_it_has_said_that_it_would_say_so_again(standby):
    standby.hear(running())
    standby.read(1, "running", again_s=5.0)
    for second in range(1, 100):
        standby.pass_time(5)
        standby.read(1, "running", again_s=5.0, at=float(second))
    assert not standby.takes_over
    standby.pass_time(10 + AFTER - 1)
    assert not standby.takes_over
    standby.pass_time(1)
    assert standby.takes_over


def test_one_that_was_silent_for_a_while_is_there_again_once_it_says_so(standby):
    standby.hear(running())
    standby.read(1, "running", again_s=5.0)
    standby.pass_time(20)
    assert standby.dead_since is not None
    standby.read(1, "running", again_s=5.0, at=20.0)
    assert standby.dead_since is None


def test_what_a_broker_hands_over_again_is_no_sign_of_life(standby):
    standby.hear(running())
    standby.read(1, "running", again_s=5.0)
    for _ in range(8):
        standby.pass_time(5)
        standby.read(1, "running", again_s=5.0)
    assert standby.takes_over


def test_silence_while_the_broker_is_away_is_nobodys(standby):
    standby.hear(running())
    standby.read(1, "running", again_s=5.0)
    standby.pass_time(1000, hears=False)
    assert standby.dead_since is None


def test_what_another_server_retains_of_an_earlier_one_takes_no_promise_back(standby):
    """A server and the coordinator go out together: no last will comes, and the standby reads at another server."""
    standby.hear(running(SECOND))
    standby.read(1, "running", again_s=5.0)
    standby.hear(running(FIRST))
    assert standby.last == SECOND
    standby.pass_time(10 + AFTER)
    assert standby.takes_over


def test_one_that_has_started_again_has_promised_nothing_yet(standby):
    standby.hear(running())
    standby.read(1, "running", again_s=5.0)
    standby.hear(running(Instance(b"a" * 16, 2, 150.0)))
    standby.pass_time(1000)
    assert not standby.takes_over
