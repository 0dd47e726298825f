"""What a node remembers of the ledgers of its peers: a small state machine of marks that only rise.

A coordinator keeps it of the members of its fleet, a device of those whose spends it has received: its neighbours, and
who gave it a token. A peer may have had several ledgers, each a replaced card, and a mark is kept for each of them:

- the ledger that *stands* is the one that joined last;
- one *beside* it is another that nobody is known to have counted: it is told too;
- one *covered* is another whose spends the standing ledger has accepted as its own, so that it is not told again.

What is told to a ledger that knows nothing is the price of the one that stands and of all beside it, and that sum never
falls, whatever comes in whichever order:

- a birth raises the mark of a ledger that is known, and adds none (unless nothing was ever spent by the peer);
- a message of a run, and the word of a third party that received one, raise a mark or add one beside the others;
- a ledger that joins after it was told may cover others: those that it names as accepted, at least as high as they are
  known here, and only if its own price has risen by as much. If in doubt a mark stays, and is counted twice.

A peer lies about its own marks alone, and a third party can only raise one: a lie stops a device until its owner
accepts, and makes none spend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from hushgrid.node.wire import CLAIMS, Mark

#: The most spends that a ledger may have lost. A mark that is further ahead is taken for a lie and dropped: accepting
#: it would use up the numbers that a mark can hold (2^48).
MOST_LOST = 10**9
#: A mark whose price is above this counts as one without privacy, so that all sums stay finite.
LARGEST = 2.0**64
MOST_LEDGERS = 8  #: of one peer beside the one that stands, and as many covered; more are added up in one mark
POOL = b""  #: the ledger of that mark: no real one has this id
ROUNDING = 1 + 2.0**-40  #: by which a sum of prices may differ from the same sum in another order


def bounded(mark: Mark) -> Mark:
    """The same mark with finite sums: a price above LARGEST counts as an answer without privacy."""
    largest = max(mark.epsilon, mark.mu2)
    if largest <= LARGEST:
        return mark
    return Mark(mark.ledger, mark.no, min(mark.epsilon, LARGEST), min(mark.mu2, LARGEST), True)


def plausible(mark: Mark, counted: Mark) -> bool:
    """Whether a ledger that has counted as far as `counted` can ever have come as far as `mark`."""
    return mark.no <= counted.no + MOST_LOST


def above(mark: Mark, counted: Mark) -> bool:
    """Whether any component of a mark is ahead of what the ledger has counted.

    If the ledger has counted an answer without privacy, prices are not compared: its own price is infinite already.
    """
    dearer = mark.epsilon > counted.epsilon or mark.mu2 > counted.mu2 or mark.nonprivate
    return mark.no > counted.no or (dearer and not counted.nonprivate)


def highest(known: Mark | None, mark: Mark) -> Mark:
    """The maximum of every component of two marks of one ledger."""
    if known is None:
        return mark
    return Mark(
        known.ledger,
        max(known.no, mark.no),
        max(known.epsilon, mark.epsilon),
        max(known.mu2, mark.mu2),
        known.nonprivate or mark.nonprivate,
    )


class Peer(Struct, array_like=True, frozen=True):
    """The marks of one peer. The first fields are those of the mark that stands: a ledger of before has these alone."""

    ledger: Annotated[bytes, Meta(max_length=16)]
    no: int
    epsilon: float = 0.0
    mu2: float = 0.0
    nonprivate: bool = False
    beside: tuple[Mark, ...] = ()
    covered: tuple[Mark, ...] = ()

    @property
    def stands(self) -> Mark:
        return Mark(self.ledger, self.no, self.epsilon, self.mu2, self.nonprivate)

    @property
    def counted(self) -> tuple[Mark, ...]:
        """The marks that a ledger which knows nothing must count: the one that stands, and those beside it."""
        return (self.stands, *self.beside)


def peer(stands: Mark, beside: Iterable[Mark] = (), covered: Iterable[Mark] = ()) -> Peer:
    """The marks of one peer, within their bounds: no sum falls by it."""
    others = sorted((m for m in beside if not empty(m)), key=_dearness, reverse=True) if beside else []
    if len(others) > MOST_LEDGERS:
        last = [m for m in others if m.ledger == POOL]
        rest = [m for m in others if m.ledger != POOL]
        others = [*rest[: MOST_LEDGERS - 1], together([*last, *rest[MOST_LEDGERS - 1 :]])]
    return Peer(
        stands.ledger,
        stands.no,
        stands.epsilon,
        stands.mu2,
        stands.nonprivate,
        tuple(others),
        tuple(covered)[-MOST_LEDGERS:],
    )


def empty(mark: Mark) -> bool:
    """Whether nothing was spent by the ledger of this mark."""
    return not (mark.no or mark.epsilon or mark.mu2 or mark.nonprivate)


def _dearness(mark: Mark) -> tuple[bool, float, float, int]:
    return mark.nonprivate, mark.epsilon, mark.mu2, mark.no


def together(marks: Sequence[Mark]) -> Mark:
    """One mark with the price of all of these."""
    epsilon, mu2 = sum(m.epsilon for m in marks), sum(m.mu2 for m in marks)
    return bounded(Mark(POOL, max((m.no for m in marks), default=0), epsilon, mu2, any(m.nonprivate for m in marks)))


def covers(price: Mark, parts: Sequence[Mark]) -> bool:
    """Whether a price is at least that of all parts together, but for the rounding of their sum."""
    if price.nonprivate:
        return True
    total = together(parts)
    return not total.nonprivate and (total.epsilon <= price.epsilon * ROUNDING and total.mu2 <= price.mu2 * ROUNDING)


class PeerMarks:
    """The marks of all peers, by their names. `changed` names those that are not stored yet."""

    def __init__(self, peers: Mapping[str, Peer] | None = None) -> None:
        self.peers: dict[str, Peer] = dict(peers or {})
        self.changed: set[str] = set()

    # --- what comes in ---

    def born(self, name: str, mark: Mark, accepted: Sequence[Mark] = ()) -> None:
        """A peer says how far its ledger has come, outside of a run's rounds. `accepted`: what that ledger says it
        covers.
        """
        known, mark = self.peers.get(name), bounded(mark)
        if known is None or all(empty(m) for m in known.counted):
            if plausible(mark, Mark(mark.ledger, 0)):
                others = [bounded(m) for m in accepted if m.ledger != mark.ledger]
                self._set(name, peer(mark, covered=others if covers(mark, others) else ()))
        elif mark.ledger in {m.ledger for m in known.counted} or mark.ledger in {m.ledger for m in known.covered}:
            self._raise(name, known, mark)

    def spent(self, name: str, mark: Mark) -> None:
        """A message of a run says how far the ledger has come that sent it, or a third party that has received one."""
        known, mark = self.peers.get(name), bounded(mark)
        if empty(mark):
            return
        if known is None:
            if plausible(mark, Mark(mark.ledger, 0)):
                self._set(name, peer(mark))
        else:
            self._raise(name, known, mark)

    def joined(self, name: str, mark: Mark, accepted: Sequence[Mark] | None) -> None:
        """A ledger has joined a run after it was told all of `marks`: it stands from here on. None: it says of
        nothing.
        """
        known, mark = self.peers.get(name), bounded(mark)
        if known is None:
            self.born(name, mark, accepted or ())
            return
        before = [m for m in known.counted if m.ledger == mark.ledger]
        others = [m for m in known.counted if m.ledger != mark.ledger]
        highest_mark = highest(self.mark(name, mark.ledger), mark)
        taken = [m for m in others if not lacking((m,), mark, accepted or ())]
        if not covers(highest_mark, [*before, *taken]):
            taken = []
        beside = [m for m in others if m not in taken]
        covered = [m for m in known.covered if m.ledger != mark.ledger] + [m for m in taken if not empty(m)]
        self._set(name, peer(highest_mark, beside, covered))

    # --- what is told ---

    def mark(self, name: str, ledger: bytes) -> Mark | None:
        """The mark of one ledger of a peer."""
        known = self.peers.get(name)
        if known is None:
            return None
        if known.ledger == ledger:
            return known.stands
        return next((m for m in (*known.beside, *known.covered) if m.ledger == ledger), None)

    def marks(self, name: str, ledger: bytes | None = None) -> tuple[Mark, ...]:
        """All that the ledger of this id is to be told; None: one that knows nothing. The first is the most
        important.
        """
        known = self.peers.get(name)
        if known is None:
            return ()
        mine = self.mark(name, ledger) if ledger is not None else None
        others = tuple(m for m in known.counted if m.ledger != ledger and not empty(m))
        if mine is None:
            return others or (known.stands,)
        return (*others, mine) if empty(mine) else (mine, *others)

    def lacking(self, name: str, mark: Mark, accepted: Sequence[Mark] | None) -> tuple[Mark, ...]:
        """What a ledger that joins does not count yet. None: it is of a program that says of nothing, and is
        believed.
        """
        return () if accepted is None else lacking(self.marks(name, mark.ledger), mark, accepted)

    def ahead(self, names: Iterable[str], plan: Mapping[str, Sequence[Mark]]) -> tuple[tuple[str, Mark], ...]:
        """What is remembered of these peers beyond what a plan says of them: CLAIMS marks at most."""
        claims = (
            (name, mark)
            for name in names
            if name in self.peers
            for mark in self.peers[name].counted
            if not empty(mark) and not any(m.ledger == mark.ledger and not above(mark, m) for m in plan.get(name, ()))
        )
        return tuple(claim for claim, _ in zip(claims, range(CLAIMS), strict=False))

    # --- inside ---

    def _raise(self, name: str, known: Peer, mark: Mark) -> None:
        """The mark of one ledger rises; one that is not known is added beside the others."""
        current = mark.ledger == known.ledger  # as it is with nearly every message
        before = known.stands if current else self.mark(name, mark.ledger)
        counted = before or Mark(mark.ledger, 0)
        if not plausible(mark, counted) or not above(mark, counted):
            return
        risen = highest(before, mark)
        if current:
            price = risen.no, risen.epsilon, risen.mu2, risen.nonprivate
            self.peers[name] = Peer(risen.ledger, *price, known.beside, known.covered)
            self.changed.add(name)
            return
        beside = [m for m in known.beside if m.ledger != mark.ledger] + [risen]
        self._set(name, peer(known.stands, beside, [m for m in known.covered if m.ledger != mark.ledger]))

    def _set(self, name: str, changed: Peer) -> None:
        if self.peers.get(name) != changed:
            self.peers[name] = changed
            self.changed.add(name)


def lacking(marks: Iterable[Mark], mark: Mark, accepted: Sequence[Mark]) -> tuple[Mark, ...]:
    """Of these marks those that are ahead of a ledger with this mark, which has accepted those of others."""
    levels = {m.ledger: m for m in accepted} | {mark.ledger: mark}
    return tuple(m for m in marks if above(m, levels.get(m.ledger, Mark(m.ledger, 0))))
