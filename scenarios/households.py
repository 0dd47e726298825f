"""A day of changing loads for a case: 100 houses, a minute a row, scaled onto the loads of its buses.

The houses are those of scenarios/data/README.md: modelled load shapes, so nothing here is private.
"""

from __future__ import annotations

import bz2
import csv
import io
from functools import cache
from importlib import resources

import numpy as np

from hushgrid.grid_cases.case import Case, Floats

MINUTES = 1440


@cache
def profiles() -> Floats:
    """Active power of each house in each minute of the day, (1440, 100), kW; read-only."""
    packed = (resources.files("hushgrid.scenarios") / "data" / "households.csv.bz2").read_bytes()
    _, *rows = csv.reader(io.StringIO(bz2.decompress(packed).decode()))
    kw = np.array([row[1:] for row in rows], np.float64)
    kw.flags.writeable = False
    return kw


def day(case: Case, minutes: int = 15) -> Floats:
    """The loads of a case over a day, (1440 / minutes, 2, buses), p.u.: p and then q of each bus, in the case's order.

    The houses are dealt out to the buses that draw active power; a bus draws what its houses draw together, averaged
    over each interval and scaled so that its mean over the day is its load in the case. q follows p at the case's
    ratio; a bus without active load keeps its q. Raises ValueError unless `minutes` divides the day.
    """
    if MINUTES % minutes:
        raise ValueError(f"found {minutes} minutes, expected a divisor of {MINUTES}")
    kw = profiles().reshape(MINUTES // minutes, minutes, -1).mean(axis=1)
    loaded = np.flatnonzero(case.buses.p_d != 0)
    shape = np.ones((len(kw), len(case.buses)))
    for turn, bus in enumerate(loaded.tolist()):
        houses = [turn % kw.shape[1]] if len(loaded) > kw.shape[1] else range(turn, kw.shape[1], len(loaded))
        drawn = kw[:, list(houses)].sum(axis=1)
        shape[:, bus] = drawn / drawn.mean()
    return shape[:, None, :] * np.stack([case.buses.p_d, case.buses.q_d])


def hours() -> Floats:
    """Energy of each house in each hour of the day, (100, 24), kWh: the rows of scenarios/data/household-hours.csv, to
    1 Wh.
    """
    found: Floats = profiles().reshape(24, 60, -1).mean(axis=1).T
    return found
