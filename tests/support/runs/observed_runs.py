"""Everything of a run that anybody but a device's owner can see, with clock, identifiers and the gates' values held still
(lab/audit/interference.py)."""

from __future__ import annotations

from contextlib import contextmanager

from hushgrid.lab.audit import interference
from hushgrid.lab.audit.interference import LOADS, NOW, ROWS, constant, differing, left_in, tables, with_data

__all__ = ["LOADS", "NOW", "ROWS", "constant", "differing", "held_still", "left_in", "seen", "tables", "with_data"]


@contextmanager
def held_still(monkeypatch, release=None):
    """No clock, no chance, and answers that are constants. `release(lattice, v, n)`: other answers."""
    with interference.held_still(release) as held:
        yield held


def seen(monkeypatch, directory, raw, *data, out=False, release=None):
    """{what: value} of a run in this process."""
    return interference.seen(directory, raw, *data, out=out, release=release)
