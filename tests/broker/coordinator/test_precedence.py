"""Of two coordinators of a fleet the one that began later goes on; one that starts again replaces nobody."""

from types import SimpleNamespace

import pytest

from hushgrid.broker.coordinator.membership import Precedence
from hushgrid.kernels.errors import Refused
from hushgrid.node import wire
from hushgrid.node.wire import Birth, Capabilities, Death, Instance, Mark, Progress

ONE, OTHER = b"a" * 16, b"b" * 16
OFFERED = Capabilities("0.2.0", ("ladmm",), ("laplace",), "zones", "ab", 4)


def began(moment, ledger=ONE, session=3):
    made = Precedence()
    made.claim(SimpleNamespace(ledger=SimpleNamespace(id=ledger), session=session), moment)
    return made


@pytest.mark.parametrize("say", [lambda by: Death(1, by), lambda by: Progress(b"r" * 16, 0, "running", by)])
def test_the_later_one_goes_on_whatever_it_says(say):
    first, second = began(100.0), began(200.0, OTHER)
    first.read(wire.encode(say(second.instance)))
    second.read(wire.encode(say(first.instance)))
    with pytest.raises(Refused, match=r"coordinator: another one of this fleet began at 1970-01-01T00:03:20Z"):
        first.check(2)
    second.check(2)


def test_of_two_that_began_at_the_same_moment_one_goes_on():
    both = began(100.0), began(100.0, OTHER)
    for one, other in (both, both[::-1]):
        one.read(wire.encode(Death(1, other.instance)))
    assert sorted(one.later is None for one in both) == [False, True]


def test_what_it_has_said_itself_in_an_earlier_session_stops_nobody_whatever_the_clock():
    again = began(0.0, session=4)
    again.read(wire.encode(Death(3, Instance(ONE, 3, 1e9))))
    again.check(2)


def test_what_is_retained_of_one_that_is_gone_stops_nobody_whose_connection_nobody_takes():
    new = began(0.0)  # a hub without a clock, whose card was replaced
    new.read(wire.encode(Death(3, Instance(OTHER, 3, 1e9))))
    new.check(1)
    assert not new.yields(1)
    assert new.yields(2)


@pytest.mark.parametrize("payload", [b"", b"nothing", wire.encode(Death(9)), wire.encode(
    Birth(1, b"", Mark(b"l", 0), OFFERED)), wire.encode(Progress(b"r" * 16, 3, "done"))])  # fmt: skip
def test_what_names_no_coordinator_stops_nobody(payload):
    one = began(100.0)
    assert one.read(payload) == []
    one.check(2)


def test_a_program_from_before_reads_what_is_said_now_and_the_other_way_round():
    assert wire.encode(Death(2)) == b"\x82\xa4type\xa5death\xa7session\x02"
    assert wire.decode_presence(wire.encode(Death(2))) == Death(2, None)
