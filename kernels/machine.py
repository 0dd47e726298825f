"""One algorithm is one pure state machine per role. This module says what a machine promises to the program that runs
it.

The same machine object runs in the simulator, in the daemon and in the tests, and cannot tell which. Data and
randomness come in through the gate that the machine is given. It reads no clock, no socket and no global random state.
Its whole memory is `state`, one dataclass of arrays and scalars, which the driver saves and restores without code per
algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hushgrid.kernels.types import Vector

#: The largest size of an entry of an iterate. An iterate with a larger entry, or one that is not finite, has diverged;
#: it is neither sent nor accepted. The bound is public, and sums and products of such numbers with any plan's stay
#: finite.
LARGEST = 2.0**40


class Malformed(Exception):
    """A message that a machine refuses before its state changes: of a foreign sender, type or dimension."""


ALL = ""  #: a destination: every neighbour, one broadcast


class Send(NamedTuple):
    """One message that a machine wants to send."""

    dst: str  #: the receiver's name, or ALL
    seq: int  #: the message's number on this edge
    body: Any  #: a tagged struct of the machine's pattern


class Step(NamedTuple):
    """What a machine wants done. The driver commits the gate's spends, the state and the messages in one transaction.

    Only then does it publish the messages.
    """

    send: tuple[Send, ...] = ()
    done: str | None = None  #: why the run is over for this machine; None while it goes on
    taken: bool = False  #: whether the message was new and is in the state now; False: a repetition, or not its turn
    more: bool = False  #: whether `proceed` can make another step at once; each is committed by itself


NOTHING = Step()


class Machine(Protocol):
    """One role of an algorithm. Messages may be lost, repeated or reordered; every method is idempotent under that."""

    #: A dataclass, the machine's whole memory. `encoded_names` of its class, if it has that, says under which other
    #: names fields stand in what is stored.
    state: Any

    @property
    def started(self) -> bool:
        """Whether the run is known to have begun. What was sent before then needs no repetition."""
        ...

    @property
    def complete(self) -> bool:
        """Whether this role has done all that the run can ask of it. Only then may a coordinator call the run done."""
        ...

    def start(self) -> Step:
        """The first step. Called once, when every member has joined."""
        ...

    def receive(self, sender: str, seq: int, body: object) -> Step:
        """The step for message number `seq` of `sender`. An old message gets the same bytes again, or nothing.

        Raises Malformed if the message is refused; then the state is unchanged.
        """
        ...

    def tick(self) -> Step:
        """Some time has passed: returns the messages whose receipt is not proven yet, as the same bytes."""
        ...


class Keeping(Machine, Protocol):
    """A machine of a device. It says what the device keeps of a run that is done, and which broadcasts it needs."""

    @property
    def hears(self) -> Sequence[str]:
        """The names of the nodes whose broadcasts it needs."""
        ...

    def outcome(self) -> dict[str, Vector]:
        """What the device keeps: vectors by name, a function of the state alone."""
        ...


class Proceeding(Machine, Protocol):
    """A machine that may return a step with `more`."""

    def proceed(self) -> Step:
        """The next step, which needs no further message."""
        ...
