"""What a broker keeps from a device: topics that it refuses, and broadcasts that it withholds without a word."""

from __future__ import annotations

from collections import Counter

from hushgrid.node import wire

BY_EDGE = 3  #: messages of a neighbour that had to be asked for, one after the other, until that is said


class Withheld:
    """The topics that a device cannot publish or hear; its birth tells them to the coordinator."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] = ()
        self._by_edge: Counter[str] = Counter()  #: neighbour: messages had on request alone, since its last broadcast

    def add(self, topic: str) -> bool:
        """Whether that is new, and there is room in the birth to tell it."""
        if topic in self.topics or len(self.topics) >= wire.BARRED:
            return False
        self.topics += (topic,)
        return True

    def heard(self, neighbour: str, by_broadcast: bool) -> bool:
        """A message of a neighbour has come. True if so many have come on request alone that its broadcasts must be
        missing.
        """
        if by_broadcast:
            self._by_edge[neighbour] = 0
            return False
        self._by_edge[neighbour] += 1
        return self._by_edge[neighbour] == BY_EDGE
